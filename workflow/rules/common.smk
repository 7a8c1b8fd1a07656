# What the rules of nodes share: their file, and what it says of inputs and resources.

from replication.plan.nodes import node_path, read_needs

CATALOG = None  # set by the process that plans (plan.smk)
NEEDS = {}


def needs(output):
    """What the node that makes `output` says; the process that plans writes it first."""
    if output not in NEEDS:
        try:
            file = Path(output)
            path = CATALOG.node(file).write() if CATALOG else node_path(file, SETTINGS.scale)
            NEEDS[output] = {"node": str(path), **read_needs(path)}
        except VitrailError as error:
            stop(error)
    return NEEDS[output]


def need(output, what):
    """A function that gives Snakemake one of them, for the output that wildcards name."""
    return lambda wildcards: needs(output.format(**wildcards))[what]


def node_file():
    """Where the node's file lies: a parameter, derived from the output, that triggers nothing.

    What of it decides the result is the parameter `identity`. The place is no input: it names the
    scale, and two scales may share a run.
    """
    return lambda wildcards, output: needs(output[0])["node"]
