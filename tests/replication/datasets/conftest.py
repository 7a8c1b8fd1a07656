import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from replication.config.datasets import DatasetInfo
from replication.config.recipes.classification import ClassificationRecipe

RESET = struct.pack("ii", 1, 0)  # closing a socket then resets its connection


class Server(ThreadingHTTPServer):
    """Serves `content` with byte ranges; paths beginning with a word behave as it says."""

    def __init__(self):
        self.content = b""
        self.requests: list[tuple[str, int]] = []  # path, first byte
        self.faults: dict[str, list[int | str]] = {}  # by path: what answers come first
        super().__init__(("127.0.0.1", 0), Handler)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}/archive"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        behaviour = self.path.split("/")[-2]  # of a proxy, the path is the whole URL
        start = int(self.headers.get("Range", "bytes=0-")[6:-1])
        self.server.requests.append((behaviour, start))
        content = self.server.content
        if behaviour == "gone":
            self.send_error(404)
            return
        faults = self.server.faults.get(behaviour, [])
        if faults:
            fault = faults.pop(0)
            if fault == "silence":  # until the other side hangs up
                self.connection.recv(1)
            elif fault == "reset":  # the connection, in the middle of it
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                self.close_connection = True
            else:
                self.send_error(fault)
            return
        if behaviour == "corrupt":
            content = content[:-1] + bytes([content[-1] ^ 1])
        if behaviour == "deaf":
            start = 0
        if start >= len(content) > 0:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        rest = content[start:]
        half = behaviour in ("drops", "deaf", "stalls") and len(self.server.requests) == 1
        self.wfile.write(rest[: len(rest) // 2] if half else rest)
        if half and behaviour == "stalls":
            self.connection.recv(1)  # until the other side hangs up

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="session")
def digits(registry) -> DatasetInfo:
    return registry["digits"]


@pytest.fixture(scope="session")
def recipe():
    """Make a recipe for 28-pixel digits; keyword arguments change its augmentation."""

    def make(data=None, **augmentation) -> ClassificationRecipe:
        return ClassificationRecipe.model_validate(
            {
                "model": {"name": "any"},
                "data": {"dataset": "digits", "image_size": 28, **(data or {})},
                "augmentation": augmentation,
                "optimizer": {"lr": 1e-3},
                "schedule": {"epochs": 1},
                "batch": {"size": 8, "micro": 4},
            }
        )

    return make
