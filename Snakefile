"""Vitrine's front door: every table and figure of every paper, by name.

snakemake all                                everything, at the scale of configs/default.yaml
snakemake variance_table5                    one artifact, with all that it needs
snakemake variance_table5 --profile slurm    the same at full scale, on a cluster
snakemake --list-target-rules                what there is to ask for
"""

import os
import shlex
import sys
from pathlib import Path

from snakemake.cli import get_argument_parser
from snakemake.utils import min_version

from vitrine.plan.catalog import is_target_name, load_catalog, rerun_trigger
from vitrine.errors import VitrineError, did_you_mean
from vitrine.plan.functions import source_digest

min_version("9.0")


# The rules call `python` and `torchrun`: those that stand beside the Python that runs snakemake,
# on this machine and on a cluster's nodes, whether or not the environment was activated.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


configfile: "configs/default.yaml"


def stop(error):
    """Say in one sentence what is wrong, and leave."""
    print(f"vitrine: {error}", file=sys.stderr)
    sys.exit(2)


try:
    CATALOG = load_catalog(**config)
    TARGETS = CATALOG.targets
except VitrineError as error:
    stop(error)

RUNS, DATA, RESULTS = CATALOG.runs_root, CATALOG.data_root, CATALOG.results


wildcard_constraints:
    paper="|".join(CATALOG.papers),


include: "workflow/rules/common.smk"
include: "workflow/rules/targets.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/benchmark.smk"
include: "workflow/rules/artifacts.smk"
include: "workflow/rules/report.smk"


report: "workflow/report/workflow.rst"


# `snakemake` alone makes everything.
workflow.default_target = "all"


# Snakemake would say of an unknown target only that no rule makes it.
for name in get_argument_parser().parse_known_args(sys.argv[1:])[0].targets:
    if is_target_name(name) and not workflow.is_rule(name) and not Path(name).exists():
        stop(f"target '{name}' is unknown{did_you_mean(name, TARGETS)}")
