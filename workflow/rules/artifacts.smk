# Artifacts: measurements set beside the paper's printed values, as tables and figures.

RENDERING = str(RESULTS / "{paper}" / "{artifact}.json")


rule table:
    """Set a table's measurements beside the printed values."""
    input:
        need(RENDERING, "inputs"),
    output:
        record=RENDERING,
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
        identity=need(RENDERING, "identity"),
        node=node_file(),
        caption=lambda wildcards: artifact_of(wildcards).caption,
    shell:
        "python -m vitrail run {params.node:q} &> {log:q}"


use rule table as figure with:
    output:
        record=RENDERING,
        csv=str(RESULTS / "{paper}" / "{artifact}.csv"),
        svg=report(
            str(RESULTS / "{paper}" / "{artifact}.svg"),
            caption="../report/artifact.rst",
            category="{paper}",
            labels={"artifact": "{artifact}", "kind": "figure"},
        ),
        png=str(RESULTS / "{paper}" / "{artifact}.png"),
    wildcard_constraints:
        artifact=names_of("figure"),
