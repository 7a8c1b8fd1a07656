"""A process that has imported everything once, and forks a child for each command.

Imports take a command three CPU seconds and more, as much as a micro training does. So on one
machine Snakemake starts a server (workflow/rules/report.smk), and ``vitrail COMMAND`` asks it
over a Unix socket to run the command in a child process with the caller's folder, arguments,
environment, standard streams and signals, and exits with the child's status. The server does
nothing but import, so a child computes the same bits as a fresh process. It has one thread, as
libraries read the number when they are loaded, and runs the commands that have one.
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

ADDRESS = "VITRAIL_FORK_SERVER"  # in a command's environment: the server's socket
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
STREAMS = (0, 1, 2)
PACKAGES = (vitrail, replication)
NOT_IMPORTED = ("vitrail.__main__", "vitrail.commands", "replication.cli")  # what people call
Process = multiprocessing.get_context("fork").Process
REQUEST_BYTES = 2**20  # more than the kernel lets a caller send at once


def start() -> subprocess.Popen[bytes] | None:
    """Start a server, named in `os.environ` for the commands that this process starts.

    It ends with this process, or when the `stdin` of what is returned is closed. None where no such
    socket can be had, as on macOS, or no process: commands then run by themselves.
    """
    os.environ.pop(ADDRESS, None)
    try:
        listener = _listener()
    except OSError:
        return None
    with listener:
        address = listener.getsockname()
        listener.listen(128)  # commands wait here while the server imports
        try:
            server = subprocess.Popen(
                [sys.executable, "-m", "vitrail", "serve", str(listener.fileno())],
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env={**os.environ, **dict.fromkeys(THREADS, "1")},
                start_new_session=True,  # Ctrl-C is for the callers, which pass it on
            )
        except OSError:
            _remove(address)
            return None
    os.environ[ADDRESS] = address
    return server


def _listener() -> socket.socket:
    """Bind a socket in a new folder of this user's.

    Raises:
        OSError: there are no such sockets.
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
    """Let the server run this command and exit with its status; return where none can run it.

    The processes of torchrun, and those with more threads than the server, run by themselves.
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
    """Import everything; then, for each request, run `command` in a child that is as it says."""
    imported = _modules()  # of before: what changes meanwhile may be imported or not
    for package in PACKAGES:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(NOT_IMPORTED):
                with suppress(Exception):  # the command that needs it says why it cannot
                    importlib.import_module(module.name)
    gc.collect()
    gc.freeze()  # a child that collects garbage must not touch, and so copy, what was imported
    try:
        while sys.stdin.fileno() not in wait([listener, sys.stdin.fileno()]):
            caller, _ = listener.accept()
            # Records have the digest of the code on the disk; a caller runs other code by itself.
            if _modules() == imported:
                Process(target=_answer, args=(caller, command)).start()  # also waits for the ended
            caller.close()
    finally:
        _remove(listener.getsockname())


def _modules() -> dict[Path, tuple[int, int]]:
    """Size in bytes and time in nanoseconds of each module of the packages that exists."""
    found = {}
    for package in PACKAGES:
        for file in Path(package.__path__[0]).rglob("*.py"):
            with suppress(FileNotFoundError):  # deleted since it was listed
                found[file] = (stat := file.stat()).st_size, stat.st_mtime_ns
    return found


def _answer(caller: socket.socket, command: Callable[[], None]) -> None:
    """Run a caller's command in a child, which gets its signals; tell it the exit status.

    A caller that is killed takes its command along.
    """
    request, streams, _, _ = socket.recv_fds(caller, REQUEST_BYTES, len(STREAMS))
    if not request:
        return  # it was killed before it asked
    child = Process(target=_run, args=(caller, request, streams, command))
    child.start()
    try:
        caller.send(b"1")
        while child.sentinel not in wait([caller, child.sentinel]):
            number = caller.recv(1)
            os.kill(cast(int, child.pid), number[0] if number else signal.SIGKILL)
    except OSError:  # it was killed meanwhile
        child.kill()
    child.join()
    status = cast(int, child.exitcode)  # -N where signal N has ended it
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
    importlib.import_module("numpy").random.seed()  # anew, as Python's own generator is by itself
    command()
