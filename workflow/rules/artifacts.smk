# Artifacts: tables and figures of measurements beside the paper's printed values.

RENDERING = str(RESULTS / "{paper}" / "{artifact}.json")
TARGET = target_of("{paper}", "{artifact}")


for kind, suffixes in Artifact.SUFFIXES.items():

    rule:
        name:
            kind
        input:
            need(RENDERING, "inputs"),
        output:
            RENDERING,
            [str(RESULTS / "{paper}" / f"{{artifact}}{suffix}") for suffix in suffixes],
        log:
            str(RUNS / "logs" / CATALOG.scale.name / f"{TARGET}.log"),
        benchmark:
            str(RUNS / "logs" / CATALOG.scale.name / f"{TARGET}.tsv")
        wildcard_constraints:
            artifact=names_of(kind),
        priority: 2
        localrule: True
        conda:
            "../../envs/environment.yml"
        params:
            identity=need(RENDERING, "identity"),
            node=node_file(),
        shell:
            "python -m vitrail run {params.node:q} &> {log:q}"
