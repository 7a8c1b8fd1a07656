# Artifacts: measurements set beside the paper's printed values, as tables and figures.

from vitrine.plan.catalog import rerun_trigger
from vitrine.plan.code import rendering_digest


def names_of(kind):
    """A pattern that matches the names of all artifacts of a kind."""
    names = {artifact.name for artifact in CATALOG.artifacts if artifact.kind == kind}
    return "|".join(sorted(names)) or "(?!)"


def artifact_of(wildcards):
    """The artifact that the wildcards name."""
    return CATALOG.artifact(wildcards.paper, wildcards.artifact)


def artifact_inputs(wildcards):
    """The measurements behind an artifact, and its printed values."""
    measurements = [str(m.path) for m in artifact_of(wildcards).measurements]
    reference = CATALOG.paper(wildcards.paper).folder / "reference" / f"{wildcards.artifact}.csv"
    return measurements + ([str(reference)] if reference.is_file() else [])


RENDER = (
    "python -m vitrine.artifacts render {wildcards.paper} {wildcards.artifact}"
    " --scale {config[scale]:q} --runs {config[runs_root]:q} --results {config[results_root]:q} &> {log:q}"
)
LOG = str(RUNS / "logs" / CATALOG.scale.name / "{paper}_{artifact}")


rule table:
    """Set a table's measurements beside the printed values."""
    input:
        artifact_inputs,
    output:
        csv=str(RESULTS / "{paper}" / "{artifact}.csv"),
        md=report(
            str(RESULTS / "{paper}" / "{artifact}.md"),
            caption="../report/artifact.rst",
            category="{paper}",
            labels={"artifact": "{artifact}", "kind": "table"},
        ),
        tex=str(RESULTS / "{paper}" / "{artifact}.tex"),
    log:
        LOG + ".log",
    benchmark:
        LOG + ".tsv"
    wildcard_constraints:
        artifact=names_of("table"),
    priority: 2
    localrule: True
    params:
        written=lambda wildcards: rerun_trigger(artifact_of(wildcards)),
        caption=lambda wildcards: artifact_of(wildcards).caption,
        code=lambda wildcards: rendering_digest(artifact_of(wildcards).draw),
    shell:
        RENDER


rule figure:
    """Draw a figure from the measurements, with the CSV that it draws."""
    input:
        artifact_inputs,
    output:
        csv=str(RESULTS / "{paper}" / "{artifact}.csv"),
        svg=report(
            str(RESULTS / "{paper}" / "{artifact}.svg"),
            caption="../report/artifact.rst",
            category="{paper}",
            labels={"artifact": "{artifact}", "kind": "figure"},
        ),
        png=str(RESULTS / "{paper}" / "{artifact}.png"),
    log:
        LOG + ".log",
    benchmark:
        LOG + ".tsv"
    wildcard_constraints:
        artifact=names_of("figure"),
    priority: 2
    localrule: True
    params:
        written=lambda wildcards: rerun_trigger(artifact_of(wildcards)),
        caption=lambda wildcards: artifact_of(wildcards).caption,
        code=lambda wildcards: rendering_digest(artifact_of(wildcards).draw),
    shell:
        RENDER
