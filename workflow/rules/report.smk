# The report: all artifacts on one page, which claims of the papers hold, and the cost of
# everything.


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
    # Snakemake 9.27 limits how many jobs start per second. Each start leaves a timer that wakes the
    # scheduler every second from then on; after 200 jobs it takes a third of a core. On this
    # machine the limit is not needed, because the number of cores limits jobs.
    if workflow.local_exec:
        workflow.scheduler.job_rate_limiter = None
    # Before the first job starts, check for data that must be placed by hand, so that no job waits
    # in a queue for a GPU although its data is missing.
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
        # Jobs for a GPU are refused before their data are fetched: if they run here and there is no
        # GPU, or if they run on other machines and the installed torch cannot use a GPU.
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
        # A job on a cluster may also read its inputs' node files, so all node files are written.
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
    # Jobs on this machine are forked from one process that has imported torch and the rest. Its
    # start takes as long as two or three jobs. CUDA does not work after a fork, hence only on CPUs.
    jobs = len(list(workflow.dag.needrun_jobs()))
    if alone and CATALOG.scale.device == "cpu" and jobs > 4:
        global FORK_SERVER  # a global, because the process ends when nothing refers to it
        FORK_SERVER = fork_server.start()


onerror:
    print(
        "vitrail: stopped; the reason is above. The same command makes only what is still missing",
        file=sys.stderr,
    )


onsuccess:
    # The last line says where the result is. With --until it may not exist.
    for name in GIVEN.targets or ["all"]:
        target = TARGETS.get(name)
        if target and target.files and all(file.exists() for file in target.files):
            print(f"vitrail: {name} is in {CATALOG.place_of(target)}", file=sys.stderr)
