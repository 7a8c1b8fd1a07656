# The report: every artifact on one page, which of the papers' claims hold, and what it all cost.


REPORT = str(CATALOG.report)


rule report_page:
    """Link every artifact, judge the claims, add up the cost."""
    input:
        need(REPORT, "inputs"),
        web=list(map(str, WEB)),
    output:
        REPORT,
        list(map(str, CATALOG.reports)),
    log:
        str(RUNS / "logs" / CATALOG.scale.name / "report.log"),
    benchmark:
        str(RUNS / "logs" / CATALOG.scale.name / "report.tsv")
    localrule: True
    conda:
        "../../envs/environment.yml"
    params:
        identity=need(REPORT, "identity"),
        node=node_file(),
    shell:
        "python -m vitrail run {params.node:q} &> {log:q}"


onstart:
    # Snakemake 9.27 limits the jobs that start in a second, and each start leaves a timer that wakes
    # the scheduler every second from then on: after 200 jobs it takes a third of a core. What runs on
    # this machine is limited by its cores.
    if workflow.local_exec:
        workflow.scheduler.job_rate_limiter = None
    # Data that must be placed by hand is looked for before the first job starts, so that no GPU
    # waits in a queue for what is not there.
    from replication.datasets.verify import verify
    from vitrail.provenance import DIRTY, require_gpu_build

    planned = [CATALOG.node(Path(output)) for output in NEEDS]
    wanted = {path for node in planned for path in node.inputs}
    computed = [] if workflow.touch else workflow.dag.needrun_jobs()
    due = {Path(file) for job in computed for file in job.output}
    alone = workflow.local_exec and not DEPLOYED and not SETTINGS.allocation
    devices = {getattr(node, "device", "cpu") for node in planned if node.output in due} - {
        "cpu"
    }
    try:
        # What a GPU computes is refused before the data for it are fetched: here where there is
        # none, and for other machines where the installed torch could use none.
        if devices and alone:
            from replication.training.model_factory import torch_device

            for device in sorted(devices):
                torch_device(device)
        elif devices and not DEPLOYED:
            require_gpu_build()
        for name, info in CATALOG.datasets.items():
            receipt = CATALOG.receipt_of(name)
            if info.source == "manual" and receipt in wanted and not receipt.exists():
                verify(info, DATA)
        # A cluster's job may read the nodes of its inputs, too, so all of them are written.
        for node in planned:
            node.write()
    except VitrailError as error:
        stop(error)
    commits = {node.commit for node in planned}
    if None in commits:
        print(
            "vitrail: git does not tell the commit of this checkout, so what is made now cannot be "
            "published",
            file=sys.stderr,
        )
    elif any(commit.endswith(DIRTY) for commit in commits):
        print(
            "vitrail: files that these results depend on have uncommitted changes, so what is made "
            "now cannot be published",
            file=sys.stderr,
        )
    # What runs here imports torch and the rest once, in a process that the jobs are forked from. To
    # start it takes what two or three jobs take; CUDA would not survive the fork.
    jobs = len(list(workflow.dag.needrun_jobs()))
    if alone and CATALOG.scale.device == "cpu" and jobs > 4:
        global FORK_SERVER  # which ends when nothing refers to it
        FORK_SERVER = fork_server.start()


onsuccess:
    # Where the result is, as the last line; with --until it may not be there.
    for name in GIVEN.targets or ["all"]:
        target = TARGETS.get(name)
        if target and target.files and all(file.exists() for file in target.files):
            print(f"vitrail: {name} is in {CATALOG.place_of(target)}", file=sys.stderr)
