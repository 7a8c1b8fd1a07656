"""Vitrail's front door: every table and figure of every paper, by name.

snakemake all                                everything, at the scale of configs/default.yaml
snakemake variance_table5                    one artifact, with all that it needs
snakemake variance_table5 --profile slurm    the same at full scale, on a cluster
snakemake --list-target-rules                list all targets
"""

import os
import shlex
import signal
import sys
import warnings
from pathlib import Path

from snakemake.cli import get_argument_parser
from snakemake.utils import min_version

from replication.config import schema
from replication.config.settings import Settings
from vitrail.errors import VitrailError

min_version("9.0")


# The rules call `python` and `torchrun`. These are in the folder of the Python that runs snakemake,
# on this machine and on a cluster's nodes, whether or not the environment was activated. With --sdm
# they are in the rules' own environment, which has the locked packages but not the project itself,
# and for which Snakemake drops the caller's PYTHONPATH. Our prefix replaces Snakemake's own, so it
# repeats `pipefail`, by which a step fails if any command of a pipe fails.
DEPLOYED = bool(workflow.deployment_settings.deployment_method)
SEARCHED = (
    f"PYTHONPATH={shlex.quote(str(Path(workflow.basedir, 'src')))}"
    if DEPLOYED
    else f"PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH"
)
shell.prefix(f"set -o pipefail; export {SEARCHED}; ")

# A training allocates and frees the same large tensors in every step. With huge pages the kernel
# maps that memory faster. Results are the same in every bit. Other C libraries ignore the variable,
# and a value that is already set is kept.
os.environ.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")

# SLURM sends a signal to all processes of a job before its time is up. It is meant for the
# training, which then saves. Without this line it would end the snakemake that runs the training,
# and SLURM would end the training before it has saved.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)

# While a dataset does not exist yet, Snakemake does not know the size of a job's input, and never
# awaits the coroutine that would compute it.
warnings.filterwarnings("ignore", "coroutine 'InputFiles.*sizes' was never awaited", RuntimeWarning)


configfile: "configs/default.yaml"


def stop(error):
    """Say in one sentence what is wrong, and leave."""
    print(f"vitrail: {error}", file=sys.stderr)
    sys.exit(2)


try:
    SETTINGS = schema.parse(Settings, config, "configs/default.yaml with --config")
except VitrailError as error:
    stop(error)

RUNS = SETTINGS.runs


include: "workflow/rules/common.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/measure.smk"


# A job on a cluster reads everything from its node's file. Only the process that plans reads the
# catalogue.
if workflow.is_main_process:

    include: "workflow/rules/plan.smk"
    include: "workflow/rules/data.smk"
    include: "workflow/rules/artifacts.smk"
    include: "workflow/rules/report.smk"

    # `snakemake` without a target makes everything.
    workflow.default_target = "all"
