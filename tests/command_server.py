"""Commands for tests: each line of standard input is ``python -m MODULE``, in a fork of this.

It has imported Snakemake and what planning uses, which takes as long as most dry runs. Of the
project a command imports the sources of its own checkout; Snakemake's plugins alone, which
Snakemake imports at once, are those of this one. Nothing has run here before a fork, so no thread
is missing in it.
"""

import json
import os
import runpy
import sys
import traceback

import pandas  # noqa: F401
import pydantic  # noqa: F401
import snakemake.cli  # noqa: F401
import typer  # noqa: F401

OURS = ("vitrail", "replication")


def run(module, arguments, folder, environment, out, err):
    """Be ``python -m module`` in a folder, and write what it says to two files."""
    for number, file in ((0, os.devnull), (1, out), (2, err)):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]
    sys.path[:1] = [folder, *environment["PYTHONPATH"].split(os.pathsep)]
    sys.argv = [module, *arguments]
    code = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run(**json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
