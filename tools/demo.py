"""Put the page of the demo into the site, with ONNX's runtime for browsers.

`docs/conf.py` calls `build`. The models that the page runs are committed beside the page;
`tools.demo_models` exports them.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

RUNTIME = "onnxruntime-web@1.23.2"
INTEGRITY = (
    "T09JUtMn+CZLk3mFwqiH0lgQf+4S7+oYHHtk6uhaYAAJI95bTcKi5bOOZYwORXfS/RLZCjDDEXGWIuOCAFlEjg=="
)
FILES = ("ort.wasm.min.js", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")


def build(root: Path, place: Path) -> bool:
    """Copy the page and ONNX's runtime into a folder of the site.

    Returns:
        False if npm is missing or cannot download the runtime; the page is then copied alone.

    Raises:
        ValueError: the downloaded runtime has another digest than `INTEGRITY`.
    """
    shutil.copytree(root / "docs" / "demo", place, dirs_exist_ok=True)
    if shutil.which("npm") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        pack = ["npm", "pack", RUNTIME, "--silent", "--fetch-timeout=60000"]
        if subprocess.run([*pack, "--pack-destination", folder], capture_output=True).returncode:
            return False
        (archive,) = Path(folder).glob("*.tgz")
        found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if found != INTEGRITY:
            raise ValueError(f"{RUNTIME} has the SHA-512 {found}, expected {INTEGRITY}")
        with tarfile.open(archive) as members:
            for name in FILES:
                member: Any = members.extractfile(f"package/dist/{name}")
                (place / name).write_bytes(member.read())
    return True
