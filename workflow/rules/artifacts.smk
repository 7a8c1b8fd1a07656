# Artifacts: measurements set beside the paper's printed values, as tables and figures.

RENDER = (
    "python -m vitrail render {wildcards.paper} {wildcards.artifact} {params.where}" " &> {log:q}"
)


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
        str(RUNS / "logs" / CATALOG.scale.name / "{paper}_{artifact}.log"),
    benchmark:
        str(RUNS / "logs" / CATALOG.scale.name / "{paper}_{artifact}.tsv")
    wildcard_constraints:
        artifact=names_of("table"),
    priority: 2
    localrule: True
    conda:
        "../../envs/environment.yml"
    params:
        where=WHERE,
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
        str(RUNS / "logs" / CATALOG.scale.name / "{paper}_{artifact}.log"),
    benchmark:
        str(RUNS / "logs" / CATALOG.scale.name / "{paper}_{artifact}.tsv")
    wildcard_constraints:
        artifact=names_of("figure"),
    priority: 2
    localrule: True
    conda:
        "../../envs/environment.yml"
    params:
        where=WHERE,
        written=lambda wildcards: rerun_trigger(artifact_of(wildcards)),
        caption=lambda wildcards: artifact_of(wildcards).caption,
        code=lambda wildcards: rendering_digest(artifact_of(wildcards).draw),
    shell:
        RENDER
