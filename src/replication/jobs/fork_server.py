"""A server process that imports all modules once and forks a child for each command.

The imports of a command take at least three CPU seconds, as much as a very small training. So, for
the jobs of one machine, Snakemake starts a server (workflow/rules/report.smk). ``vitrail COMMAND``
asks it over a Unix socket to run the command in a child process with the caller's folder,
arguments, environment, standard streams and signals, and exits with the child's exit status. The
server does nothing but import, so a child computes the same bits as a new process. The server has
one thread, since libraries read the number of threads when they are loaded; it runs only commands
with one thread.
"""

from __future__ import annotations

import gc
import importlib
import json
import multiprocessing
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import cast

import replication
import vitrail
from vitrail.files import folder_of_sockets

ADDRESS = "VITRAIL_FORK_SERVER"  # the environment variable with the path of the server's socket
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
STREAMS = (0, 1, 2)
PACKAGES = (vitrail, replication)
NOT_IMPORTED = ("vitrail.__main__", "vitrail.commands", "replication.cli")  # command-line modules
Process = multiprocessing.get_context("fork").Process
REQUEST_BYTES = 2**20  # more than the kernel allows in one message


def start() -> subprocess.Popen[bytes] | None:
    """Start a server, and put its address into `os.environ` for the commands started from here.

    The server ends with this process, or when the `stdin` of the returned process is closed. None
    if the socket cannot be created (as on macOS) or the process cannot be started; commands then
    run without a server.
    """
    os.environ.pop(ADDRESS, None)
    try:
        listener = _listener()
    except OSError:
        return None
    with listener:
        address = listener.getsockname()
        listener.listen(128)  # commands wait in this queue while the server imports
        try:
            server = subprocess.Popen(
                [sys.executable, "-m", "vitrail", "serve", str(listener.fileno())],
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env={**os.environ, **dict.fromkeys(THREADS, "1")},
                start_new_session=True,  # Ctrl-C must reach the callers only, which forward it
            )
        except OSError:
            _remove(address)
            return None
    os.environ[ADDRESS] = address
    return server


def _listener() -> socket.socket:
    """Return a socket that is bound in a new folder of this user's.

    Raises:
        OSError: there are no such sockets on this system.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = tempfile.mkdtemp(prefix="vitrail-", dir=folder_of_sockets())
    listener.bind(os.path.join(folder, "socket"))
    return listener


def _remove(address: str) -> None:
    """Remove a socket and the folder that was made for it."""
    Path(address).unlink()
    Path(address).parent.rmdir()


def run_in_server() -> None:
    """Let the server run this command and exit with its status; return if it cannot run it.

    Processes of torchrun, and those with another number of threads than the server, run by
    themselves.
    """
    address = os.environ.get(ADDRESS)
    if not address or "RANK" in os.environ or os.environ.get(THREADS[0]) != "1":
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        try:
            server.connect(address)
            request = json.dumps([os.getcwd(), sys.argv, dict(os.environ)])
            socket.send_fds(server, [request.encode()], STREAMS)
            if not server.recv(1):
                return
        except OSError:
            return
        for number in SIGNALS:
            signal.signal(number, lambda number, _: server.send(bytes([number])))
        status = server.recv(1)
    sys.exit(status[0] if status else "vitrail: the process that ran this command was killed")


def serve(listener: socket.socket, command: Callable[[], None]) -> None:
    """Import all modules; then run `command` for each request, in a child set up as requested.

    Return when `stdin` is closed.
    """
    imported = _modules()  # before the import: a file that changes during it counts as changed
    for package in PACKAGES:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(NOT_IMPORTED):
                with suppress(Exception):  # a command that needs the module reports the error
                    importlib.import_module(module.name)
    gc.collect()
    gc.freeze()  # garbage collection in a child must not touch, and so copy, the imported objects
    try:
        while sys.stdin.fileno() not in wait([listener, sys.stdin.fileno()]):
            caller, _ = listener.accept()
            # Records have the digest of the code on disk. If that has changed, callers run without
            # the server.
            if _modules() == imported:
                Process(target=_answer, args=(caller, command)).start()  # also reaps ended children
            caller.close()
    finally:
        _remove(listener.getsockname())


def _modules() -> dict[Path, tuple[int, int]]:
    """Return the size in bytes and the time in nanoseconds of each module file of the packages."""
    found = {}
    for package in PACKAGES:
        for file in Path(package.__path__[0]).rglob("*.py"):
            with suppress(FileNotFoundError):  # deleted since it was listed
                found[file] = (stat := file.stat()).st_size, stat.st_mtime_ns
    return found


def _answer(caller: socket.socket, command: Callable[[], None]) -> None:
    """Run a caller's command in a child, forward signals to it, and send back its exit status.

    If the caller is killed, its command is killed, too.
    """
    request, streams, _, _ = socket.recv_fds(caller, REQUEST_BYTES, len(STREAMS))
    if not request:
        return  # the caller was killed before it sent its request
    child = Process(target=_run, args=(caller, request, streams, command))
    child.start()
    try:
        caller.send(b"1")
        while child.sentinel not in wait([caller, child.sentinel]):
            number = caller.recv(1)
            os.kill(cast(int, child.pid), number[0] if number else signal.SIGKILL)
    except OSError:  # the caller was killed meanwhile
        child.kill()
    child.join()
    status = cast(int, child.exitcode)  # -N if signal N has ended the child
    with suppress(OSError):
        caller.send(bytes([status if status >= 0 else 128 - status]))


def _run(
    caller: socket.socket, request: bytes, streams: list[int], command: Callable[[], None]
) -> None:
    caller.close()
    for stream, given in zip(STREAMS, streams, strict=True):
        os.dup2(given, stream)
        os.close(given)
    folder, sys.argv, environment = json.loads(request)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    # Python's own generator is seeded anew after a fork, NumPy's is not.
    importlib.import_module("numpy").random.seed()
    command()
