# Functions for all rules that make nodes: the node's file, and the inputs and resources that it
# names.

from replication.records.records import code_due
from replication.records.nodes import node_path, read_needs

CATALOG = None  # set by the process that plans (plan.smk)
NEEDS = {}


def needs(output):
    """What the node that makes `output` says.

    The process that plans takes it from the catalogue, and writes the node's file when the run
    begins (report.smk). A job that a cluster runs reads that file.
    """
    if output not in NEEDS:
        try:
            file = Path(output)
            NEEDS[output] = (
                CATALOG.node(file).needs if CATALOG else read_needs(node_path(file, SETTINGS.label))
            )
        except VitrailError as error:
            stop(error)
    return NEEDS[output]


def need(output, what):
    """A function that gives Snakemake one of them, for the output that wildcards name."""
    return lambda wildcards: needs(output.format(**wildcards))[what]


def trained_by(record):
    """A function that gives Snakemake the code by which a training is due where it changes."""

    def code(wildcards):
        output = record.format(**wildcards)
        # A job on a cluster was already found to be due.
        return code_due(CATALOG.node(Path(output))) if CATALOG else needs(output)["code"]

    return code


def gpus_by_slurm(output, what):
    """How SLURM is asked for the GPUs of one node, or of several with a task on each; or None."""

    def asked(wildcards):
        node = needs(output.format(**wildcards))
        if node["nodes"] == 1:
            return {"gpu": node["gpus"]}.get(what)
        gpus = f"gpu:{node['gpus']}" if node["gpus"] else None  # per node
        return {"gres": gpus, "mpi": "srun", "tasks": node["nodes"], "tasks_per_gpu": 0}.get(what)

    return asked


def processes_of_node(wildcards, output, resources):
    """One for each GPU that a node gives: on this machine it may be fewer than were asked for."""
    return max(1, resources.get("gpu", needs(output[0])["gpus"]))


def placed(wildcards, output, threads, resources):
    """What a step begins with: in a SLURM allocation, the command that puts it on a node with room.

    As a parameter derived from the resources it triggers nothing.
    """
    if not SETTINGS.allocation:
        return ""
    if resources.get("nodes", 1) > 1:
        stop(
            f"{output[0]} asks for {resources.nodes} nodes; within an allocation a training has one: "
            "make it by --profile slurm"
        )
    gpus = resources.get("gpu", 0) or 0
    return f"bash profiles/allocation/step {threads} {resources.mem_mb} {gpus} "


def node_file():
    """Where the node's file lies: a parameter, derived from the output, that triggers nothing.

    What of it decides the result is the parameter `identity`. The place is no input: it names the
    scale, and two scales may share a run.
    """
    return lambda wildcards, output: needs(output[0])["node"]
