#!/bin/bash
# A throw-away SLURM on this machine: a controller and two nodes with eight fake GPUs each.
#
#   tests/cluster/local_slurm.sh [FOLDER]
#
# It prints `ready` when both nodes are idle and lives until its standard input ends (Ctrl-D), so
# that it cannot outlive a test that was killed. FOLDER, empty or new, keeps its logs, and what ran in
# jobcomp.txt. It needs root and installs Debian's packages where they are missing; where there can
# be no cluster, or is a real one, it says why and exits with status 3.
set -eu

folder=$(realpath -m "${1:-$(mktemp -d)}")
host=$(hostname -s)
conf=/etc/slurm/slurm.conf
mine="ClusterName=local-slurm"

refuse() { echo "local_slurm.sh: $1" >&2; exit 3; }

stop() {
    timeout 5 scancel --user root --full --signal KILL || true
    local daemon pid
    for daemon in slurmd.n1 slurmd.n2 slurmctld munged; do
        pid=$(cat "$folder/$daemon.pid") || continue
        kill "$pid" && timeout 10 tail --pid="$pid" --sleep-interval=0.1 -f /dev/null \
            || kill -KILL "$pid" || true
    done 2>/dev/null
    # With a configuration left behind, each start of snakemake waits 10 s for a dead controller.
    rm -f "$conf" /etc/slurm/gres.conf
}

[ "$(id -u)" = 0 ] || refuse "a scheduler can only be started by root"
[ -z "${SLURM_CONF:-}" ] || refuse "this machine has a SLURM of its own ($SLURM_CONF)"
[ ! -f "$conf" ] || grep -qx "$mine" "$conf" || refuse "this machine has a SLURM of its own ($conf)"
[ -z "$(ls -A "$folder" 2>/dev/null)" ] || refuse "$folder is not empty"
exec 9>/run/lock/local-slurm
flock --nonblock 9 || refuse "another one runs on this machine"

if ! command -v slurmctld >/dev/null; then
    command -v apt-get >/dev/null || refuse "SLURM is not installed, and there is no apt-get"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends \
        slurmctld slurmd slurm-client munge; } >/dev/null 2>&1 \
        || refuse "apt-get cannot install slurmctld, slurmd, slurm-client and munge"
fi

trap stop EXIT
mkdir -p "$folder"/{state,spool.n1,spool.n2,gpus} /etc/slurm

# A fake GPU is a copy of /dev/null. The nodes claim more CPUs than there are, so that jobs that
# mostly start Python need not wait for one another.
for i in 0 1 2 3 4 5 6 7; do mknod "$folder/gpus/gpu$i" c 1 3; done
echo "NodeName=n[1-2] Name=gpu File=$folder/gpus/gpu[0-7]" >/etc/slurm/gres.conf
cat >"$conf" <<END
$mine
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool.%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SchedulerParameters=sched_interval=5,bf_interval=5
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
JobCompType=jobcomp/filetxt
JobCompLoc=$folder/jobcomp.txt
ReturnToService=2
MinJobAge=300
KillWait=10
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=17001 CPUs=16 RealMemory=64000 Gres=gpu:8
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=17002 CPUs=16 RealMemory=64000 Gres=gpu:8
PartitionName=cpu Nodes=n[1-2] Default=YES MaxTime=60 DefMemPerCPU=100 PriorityTier=1
PartitionName=gpu Nodes=n[1-2] MaxTime=60 DefMemPerCPU=100 PriorityTier=10
PartitionName=urgent Nodes=n[1-2] MaxTime=60 DefMemPerCPU=100 PriorityTier=100
END

if ! munge -n >/dev/null 2>&1; then
    install -d -o munge -g munge -m 0755 /run/munge
    install -d -o munge -g munge -m 0700 /var/log/munge /var/lib/munge /etc/munge
    if [ ! -s /etc/munge/munge.key ]; then
        (umask 077 && head -c 128 /dev/urandom >/etc/munge/munge.key)
        chown munge: /etc/munge/munge.key
    fi
    setpriv --reuid=munge --regid=munge --clear-groups munged </dev/null 9>&-
    cp /run/munge/munged.pid "$folder/munged.pid"
fi
slurmctld </dev/null 9>&-
slurmd -N n1 </dev/null 9>&-
slurmd -N n2 </dev/null 9>&-

SECONDS=0
while [ $SECONDS -lt 60 ]; do
    if [ "$(sinfo --noheader --Node --format %T 2>/dev/null | sort -u)" = idle ]; then
        echo ready
        cat >/dev/null
        exit 0
    fi
    sleep 0.2
done
tail -n 20 "$folder"/*.log >&2
echo "local_slurm.sh: the nodes did not come up within 60 s" >&2
exit 1
