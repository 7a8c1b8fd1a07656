"""Each fault of a cluster by itself, on the simulated SLURM: the target is made, or one is told."""

import re

import pytest

from replication.cluster.failures import Failure
from tests.cluster.simulated_slurm import NEVER, Node, Slurm, Target
from tests.cluster.simulation import Simulation

HOUR = 3600
pytestmark = pytest.mark.usefixtures("any_path")


@pytest.fixture
def targets(tmp_path):
    """Make so many targets alike."""

    def make(count, **needs):
        return [Target(f"t{number}", tmp_path, **needs) for number in range(count)]

    return make


@pytest.fixture
def simulate(tmp_path):
    """Make targets on a SLURM of two nodes; returns the simulation, run to its end."""

    def run(targets, *, nodes=None, snakemake=(), **faults):
        slurm = Slurm(targets, nodes or [Node("n1"), Node("n2")], **faults)
        return Simulation(slurm, tmp_path, **dict(snakemake)).run()

    return run


def all_made(simulation):
    """Whether every target was made once, and Snakemake knows."""
    targets = simulation.slurm.targets.values()
    return len(simulation.made) == len(targets) and {target.made for target in targets} == {1}


def told(simulation, word):
    """What was said that has a word in it."""
    errors = [error or "" for job in simulation.jobs for error in job.errors]
    return [message for message in [*simulation.said, *errors] if word in message]


def submissions(simulation):
    """How many jobs SLURM has taken."""
    return len(simulation.slurm.jobs)


def test_a_cluster_without_faults_makes_each_target_with_one_submission(simulate, targets):
    done = simulate(targets(20))
    assert all_made(done)
    assert submissions(done) == 20


# Finding 5: a submit limit, and a controller that does not answer


def test_a_submit_limit_is_waited_for_and_uses_up_no_attempt(simulate, targets):
    done = simulate(targets(17), submit_limit=5)
    assert all_made(done)
    assert {job.attempt for job in done.jobs} == {1}
    assert submissions(done) == 17
    assert len(told(done, "QOSMaxSubmitJobPerUserLimit")) == 1


def test_a_full_queue_is_asked_once_at_each_look_and_not_once_for_each_job(simulate, targets):
    done = simulate(targets(100, seconds=HOUR), submit_limit=5)
    assert all_made(done)
    looks = done.slurm.calls.count("squeue")
    assert done.slurm.refusals <= looks


@pytest.mark.parametrize("kind", ["fail", "blank", "deaf"])
def test_a_controller_that_is_silent_at_first_is_waited_for(simulate, targets, kind):
    done = simulate(targets(12), silences=[(0, HOUR, kind)])
    assert all_made(done)
    assert {job.attempt for job in done.jobs} == {1}


def test_what_sbatch_has_taken_without_saying_so_runs_once(simulate, targets):
    done = simulate(targets(1, seconds=HOUR, resumes=False), silences=[(0, 60, "deaf")])
    assert all_made(done)
    assert [job.state for job in done.slurm.jobs.values()] == ["CANCELLED", "COMPLETED"]


def test_no_job_is_forgotten_while_queries_fail(simulate, targets):
    lasting = targets(4, seconds=2 * HOUR)
    done = simulate(lasting, silences=[(600, HOUR, "fail")], snakemake={"minutes": 180})
    assert all_made(done)
    assert submissions(done) == 4


@pytest.mark.parametrize(
    ("asked", "reason", "places"),
    [
        ({"slurm_partition": "none"}, "Invalid partition", "slurm_partition"),
        ({"slurm_account": "theirs"}, "Invalid account", "slurm_account"),
        ({"slurm_account": "theirs"}, "Invalid account", "the partitions in slurm/partitions.yaml"),
        ({"gpu": 1, "gpu_model": "none"}, "Invalid generic resource", "gpu_model"),
        ({"mem_mb": 10**6}, "node configuration is not available", "max_mem_mb"),
    ],
)
def test_a_refusal_that_cannot_pass_is_final_and_told(simulate, targets, asked, reason, places):
    """It names the file and the field that the user can correct."""
    done = simulate(targets(1), snakemake={"asked": asked})
    assert len(done.failed) == 1
    (message,) = told(done, reason)
    remedy = message.partition("sbatch call")[0]
    assert re.search(r"slurm/(config|partitions)\.yaml", remedy)
    assert places in remedy
    assert done.slurm.refusals == 1


def test_refusals_end_when_nothing_of_ours_was_in_the_queue_for_two_days(simulate, targets):
    done = simulate(targets(3), submit_limit=0)
    assert len(done.failed) == 3
    assert 48 * HOUR < done.slurm.now < 72 * HOUR
    assert told(done, "QOSMaxSubmitJobPerUserLimit")


SITE_RULES = [
    "You must specify an account!",
    "please ask for a number of nodes",
    "job submit: no default partition",
]


@pytest.mark.parametrize("site_rule", SITE_RULES)
def test_a_refusal_that_nobody_knows_is_told_and_final_after_minutes(simulate, targets, site_rule):
    done = simulate(targets(3), site_rule=site_rule)
    assert len(done.failed) == 3
    assert HOUR / 6 < done.slurm.now < HOUR / 2
    assert {job.attempt for job in done.jobs} == {6}
    assert any("slurm_account" in said for said in told(done, site_rule)) == (
        "account" in site_rule
    )


# The end of Snakemake


def test_what_slurm_has_refused_is_given_up_when_snakemake_ends(simulate, targets):
    done = simulate(targets(3), submit_limit=0, snakemake={"told_to_end": HOUR})
    assert len(done.failed) == 3
    assert done.slurm.now == HOUR
    assert not done.slurm.jobs


def test_what_waits_for_another_submission_is_given_up_when_snakemake_ends(simulate, targets):
    held = targets(1, held_until=NEVER)
    done = simulate(held, snakemake={"told_to_end": 5 * HOUR})
    assert len(done.failed) == 1
    assert done.slurm.now == 5 * HOUR
    assert max(job.submitted for job in done.slurm.jobs.values()) < 5 * HOUR


def test_what_is_in_the_queue_is_waited_for_when_snakemake_ends(simulate, targets):
    lasting = targets(5, seconds=HOUR)
    nodes = [Node("n1", sick=[(0, 10, "place")]), Node("n2"), Node("n3")]
    done = simulate(lasting, nodes=nodes, submit_limit=3, snakemake={"told_to_end": 30})
    assert submissions(done) == 3
    assert sorted(target.made for target in lasting) == [0, 0, 0, 1, 1]
    assert len(done.made) == 2


def test_a_job_that_slurm_took_without_saying_so_is_cancelled_when_snakemake_ends(
    simulate, targets
):
    lasting = targets(1, seconds=HOUR)
    done = simulate(lasting, silences=[(0, 10, "deaf")], snakemake={"told_to_end": 30})
    assert len(done.failed) == 1
    assert [job.state for job in done.slurm.jobs.values()] == ["CANCELLED"]


# Finding 6: a job that has left the queue


def test_a_job_that_ended_while_nobody_asked_is_judged_by_its_output(simulate, targets):
    done = simulate(targets(4), snakemake={"stopped": [(0, HOUR)]})
    assert all_made(done)
    assert submissions(done) == 4


def test_a_job_that_failed_while_nobody_asked_is_submitted_again(simulate, targets):
    done = simulate(targets(1, crashes=1), snakemake={"stopped": [(0, HOUR)]})
    assert all_made(done)
    assert submissions(done) == 2
    assert told(done, "no longer in the queue")


def test_an_error_of_the_user_is_final_also_where_the_job_has_left_the_queue(simulate, targets):
    done = simulate(targets(1, wrong=True), snakemake={"stopped": [(0, HOUR)]})
    assert len(done.failed) == 1
    assert submissions(done) == 1


def test_an_output_of_before_is_not_taken_for_that_of_a_job_that_left(simulate, targets):
    (target,) = targets(1, crashes=1)
    target.output.write_text("of yesterday")
    nodes = [Node("n1", sick=[(0, 100, "mute")])]  # ends the job before it deletes the old output
    done = simulate([target], nodes=nodes, snakemake={"stopped": [(0, HOUR)]})
    assert all_made(done)


def test_a_queue_that_is_printed_empty_is_no_sign_that_jobs_are_gone(simulate, targets):
    lasting = targets(3, seconds=2 * HOUR)
    done = simulate(lasting, silences=[(300, HOUR, "blank")], snakemake={"minutes": 180})
    assert all_made(done)
    assert submissions(done) == 3


@pytest.mark.parametrize("age", [0, 2, 60, 300])
def test_jobs_are_done_however_soon_slurm_forgets_them(simulate, targets, age):
    assert all_made(simulate(targets(8), min_job_age=age))


# Finding 7: sick nodes, held folders, memory, waiting that does not end


@pytest.mark.parametrize("kind", ["place", "mute"])
def test_a_sick_node_is_left_out_and_no_job_is_lost_to_it(simulate, targets, kind):
    nodes = [Node("sick", sick=[(0, NEVER, kind)]), *(Node(f"n{number}") for number in range(5))]
    done = simulate(targets(200), nodes=nodes)
    assert all_made(done)
    assert {job.attempt for job in done.jobs} == {1}
    jobs = done.slurm.jobs.values()
    assert {job.excluded for job in jobs if job.submitted > 100} == {frozenset({"sick"})}


def test_a_file_system_that_is_lost_everywhere_for_a_while_ends_no_run(simulate, targets):
    nodes = [Node(name, sick=[(0, 900, "place")]) for name in ("n1", "n2", "n3")]
    done = simulate(targets(9), nodes=nodes)
    assert all_made(done)
    assert told(done, "may be used again")


def test_a_fault_that_is_everywhere_and_stays_is_told_and_ends(simulate, targets):
    nodes = [Node(name, sick=[(0, NEVER, "place")]) for name in ("n1", "n2", "n3")]
    done = simulate(targets(3), nodes=nodes)
    assert len(done.failed) == 3
    assert all(job.errors for job in done.jobs)


def test_a_node_whose_name_slurm_does_not_tell_is_left_out_of_no_submission(simulate, targets):
    lasting = targets(3, seconds=HOUR)
    done = simulate(lasting, events=[(100, "lose")], sacct="works", min_job_age=60)
    assert all_made(done)
    assert not told(done, "Unable to open file")


def test_an_error_of_the_user_is_final(simulate, targets):
    done = simulate(targets(1, wrong=True))
    assert len(done.failed) == 1
    assert submissions(done) == 1


def test_an_old_failure_or_log_says_nothing_about_a_job(simulate, targets, tmp_path):
    (target,) = targets(1, crashes=1)
    target.log.write_text("vitrail: runs/a is being trained by job 4\n")
    Failure(2, "n1").write(tmp_path / "slurm" / "failures", "99")
    done = simulate([target])
    assert all_made(done)
    assert submissions(done) == 2


def test_a_job_on_a_held_folder_waits_and_uses_up_no_attempt(simulate, targets):
    done = simulate(targets(1, held_until=5 * HOUR))
    assert all_made(done)
    assert done.jobs[0].attempt == 1
    assert submissions(done) < 50


@pytest.mark.parametrize("ends_steps", [False, True])
def test_after_an_end_out_of_memory_a_job_asks_for_more(simulate, targets, ends_steps):
    done = simulate(targets(1, memory=3500), ends_steps=ends_steps)
    assert all_made(done)
    assert [job.memory for job in done.slurm.jobs.values()] == [1000, 2000, 4000]


def test_a_job_that_ran_out_of_time_asks_for_the_same_memory(simulate, targets):
    done = simulate(targets(1, seconds=2.5 * HOUR))
    assert all_made(done)
    assert [job.memory for job in done.slurm.jobs.values()] == [1000, 1000, 1000]


def test_a_job_that_slurm_holds_after_a_failed_launch_is_submitted_again(simulate, targets):
    nodes = [Node("sick", sick=[(0, 50, "launch")]), Node("n1", slots=1)]
    done = simulate(targets(3), nodes=nodes, snakemake={"requeue": True})
    assert all_made(done)
    assert told(done, "launch failed requeued held")


def test_a_job_that_was_requeued_too_often_is_submitted_again(simulate, targets):
    done = simulate(
        targets(1, seconds=2 * HOUR, resumes=False),
        events=[(second, "preempt") for second in range(100, 1000, 100)],
        snakemake={"requeue": True, "minutes": 180},
    )
    assert all_made(done)
    assert told(done, "JobHoldMaxRequeue")


# Finding 12: sites


@pytest.mark.parametrize("sacct", ["absent", "disabled", "works"])
@pytest.mark.parametrize("age", [2, 300])
def test_no_accounting_is_needed(simulate, targets, sacct, age):
    done = simulate(targets(3), sacct=sacct, min_job_age=age)
    assert all_made(done)
    assert submissions(done) == 3


def test_an_account_that_no_program_can_check_is_left_to_sbatch(simulate, targets):
    done = simulate(targets(1), snakemake={"asked": {"slurm_account": "ours"}})
    assert all_made(done)
    assert "-A ours" in done.slurm.jobs[1].call


def test_each_job_asks_for_a_signal_before_its_time_is_up(simulate, targets):
    """Also where --default-resources on the command line takes the place of the profile's."""
    done = simulate(targets(3, gpus=1))
    assert all_made(done)
    assert {job.signal for job in done.slurm.jobs.values()} == {"USR1@120"}


def test_the_signal_of_slurm_extra_goes_over_that_of_the_executor(simulate, targets):
    done = simulate(targets(1), snakemake={"asked": {"slurm_extra": "--signal=USR1@300"}})
    assert all_made(done)
    assert done.slurm.jobs[1].signal == "USR1@300"


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({"gpu": 0}, []),
        ({"gpu": 2}, ["--gpus=a100:2"]),
        (
            {"gpu": None, "gres": "gpu:8", "nodes": 2, "mpi": "srun", "tasks": 2},
            ["--gres=gpu:a100:8"],
        ),
    ],
)
def test_the_type_of_gpus_is_asked_for_once_and_only_with_gpus(simulate, targets, asked, wanted):
    asked = {"gpu_model": "a100", **asked}
    done = simulate(targets(1), gpu_type="a100", snakemake={"asked": asked})
    assert all_made(done)
    words = done.slurm.jobs[1].call.split()
    assert [word for word in words if word.startswith(("--gpus", "--gres"))] == wanted


# Full scale


@pytest.mark.slow
def test_full_scale_under_a_submit_limit_with_sick_nodes_is_made(simulate, targets):
    nodes = [Node(f"n{number}", slots=8) for number in range(48)]
    nodes += [Node(f"sick{number}", slots=8, sick=[(0, NEVER, "place")]) for number in range(1)]
    done = simulate(targets(1126, seconds=600), nodes=nodes, submit_limit=5)
    assert all_made(done)
    assert submissions(done) < 1126 + 5 * 5
