# The report: every artifact on one page, which of the papers' claims hold, and what it all cost.


def report_inputs(wildcards):
    """Every artifact's CSV, and the claims that are judged on them."""
    tables = [str(CATALOG.files(artifact)[0]) for artifact in CATALOG.artifacts]
    claims = [paper.folder / "claims.yaml" for paper in CATALOG.papers.values()]
    return tables + [str(file) for file in claims if file.is_file()]


rule report_page:
    """Link every artifact, judge the claims, add up the cost."""
    input:
        report_inputs,
    output:
        report(str(CATALOG.report), caption="../report/report.rst", category="report"),
    log:
        str(RUNS / "logs" / CATALOG.scale.name / "report.log"),
    benchmark:
        str(RUNS / "logs" / CATALOG.scale.name / "report.tsv")
    localrule: True
    params:
        code=rendering_digest("vitrine.artifacts.report"),
    shell:
        "python -m vitrine.artifacts report --scale {config[scale]:q} --runs {config[runs_root]:q}"
        " --results {config[results_root]:q} &> {log:q}"


onstart:
    # Data that must be placed by hand is looked for before the first job starts, so that no GPU
    # waits in a queue for what is not there.
    from vitrine.data import verify
    from vitrine.provenance import DIRTY, commit

    wanted = {path for job in NEEDS.values() for path in job["inputs"]}
    try:
        for name, info in CATALOG.datasets.items():
            receipt = CATALOG.receipt_of(name)
            if info.source == "manual" and str(receipt) in wanted and not receipt.exists():
                verify(info, DATA)
    except VitrineError as error:
        stop(error)
    if (commit() or "").endswith(DIRTY):
        print(
            "vitrine: this checkout has uncommitted changes, so what is made now cannot be published",
            file=sys.stderr,
        )
