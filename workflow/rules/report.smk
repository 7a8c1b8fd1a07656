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
    localrule: True
    params:
        code=source_digest("vitrine.artifacts"),
    shell:
        "python -m vitrine.artifacts report"
        " --scale {config[scale]:q} --runs {config[runs_root]:q} --results {config[results_root]:q}"


onstart:
    # Data that must be placed by hand is looked for before the first job starts, so that no GPU
    # waits in a queue for what is not there.
    from vitrine.data import verify

    try:
        for name in sorted(NEEDED_DATASETS):
            if (
                CATALOG.datasets[name].source == "manual"
                and not CATALOG.receipt_of(name).exists()
            ):
                verify(CATALOG.datasets[name], DATA)
    except VitrineError as error:
        stop(error)
