"""The models of the demo do what its page says, in onnxruntime and in a browser."""

import base64
import functools
import hashlib
import http.server
import io
import json
import queue
import shutil
import subprocess
import threading

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

from tests.conftest import ROOT
from tools.demo import FILES
from tools.demo_models import MODELS
from vitrail.extensions.fractional_shifts import band_limited, fourier_shift

FOLDER = ROOT / "docs" / "demo" / "models"
TOLD = json.loads((FOLDER / "models.json").read_text())
SITE = ROOT / "build" / "docs" / "docs"
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
IN_A_BROWSER = pytest.mark.skipif(
    BROWSER is None or not all((SITE / "demo" / name).is_file() for name in FILES),
    reason="needs chromium, and the site (make docs, with npm)",
)
INVARIANT = {"shift": {"A-Swin"}, "octic": {"D8"}}
PIXELS = band_limited(torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(0))).flatten()
LOOK = """<body><iframe src="demo/index.html"></iframe><script>
addEventListener("load", async () => { try {
  const page = document.querySelector("iframe").contentWindow, {demo} = page;
  await demo.ready;
  const seen = {}, changes = panel => Object.fromEntries(panel.models.map(m => [m.name, m.change]));
  await demo.shift.set({y: 3, x: -5});
  seen.shift = changes(demo.shift);
  await demo.octic.set({quarters: 3, mirrored: true});
  seen.octic = changes(demo.octic);
  const row = Float32Array.from(PIXELS);
  seen.fourier = [...demo.shifted(row, 4, 0.3, 1.75)];
  seen.turned = [...demo.turned(row, 4, 3, true)];
  seen.walk = await demo.shift.walk(2, 2);
  seen.requests = page.performance.getEntriesByType("resource").map(entry => entry.name);
  await fetch("/seen", {method: "POST", body: JSON.stringify(seen)});
} catch (error) { await fetch("/seen", {method: "POST", body: JSON.stringify(error.stack)}); } });
</script></body>"""


def images(paper):
    for uri in TOLD[paper]["images"]:
        picture = Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))
        yield torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255


def changed(paper, image):
    """The image under the group that the paper is about."""
    if paper == "shift":
        return [image.roll((y, x), (1, 2)) for y, x in ((1, 0), (3, -5), (0, 16))]
    turned = [image.rot90(quarters, (1, 2)) for quarters in range(4)]
    return [*turned[1:], *(view.flip(2) for view in turned)]


@pytest.mark.parametrize("paper", MODELS)
def test_logits_stay_where_the_method_is_invariant_and_move_where_it_is_not(paper):
    for model in TOLD[paper]["models"]:
        session = onnxruntime.InferenceSession(FOLDER / model["file"])

        def logits(image, session=session):
            (found,) = session.run(None, {session.get_inputs()[0].name: image[None].numpy()})
            return torch.from_numpy(found[0])

        largest = max(
            float((logits(view) - logits(image)).abs().max())
            for image in images(paper)
            for view in changed(paper, image)
        )
        if model["name"] in INVARIANT[paper]:
            assert largest < 1e-4 * model["spread"]
        else:
            assert largest > 0.1 * model["spread"]


def test_the_models_are_those_that_are_told_of():
    assert {paper: [model["name"] for model in TOLD[paper]["models"]] for paper in MODELS} == {
        paper: [*names] for paper, names in MODELS.items()
    }
    files = {model["file"]: model["sha256"] for paper in MODELS for model in TOLD[paper]["models"]}
    found = {file.name: file for file in FOLDER.glob("*.onnx")}
    assert {*files} == {*found}
    for name, file in found.items():
        assert hashlib.sha256(file.read_bytes()).hexdigest() == files[name]


@pytest.fixture
def server(tmp_path):
    """The site's address on this machine, and what its page says that it has seen."""
    (tmp_path / "look.html").write_text(LOOK.replace("PIXELS", json.dumps(PIXELS.tolist())))
    (tmp_path / "demo").symlink_to(SITE / "demo")
    told = queue.Queue()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_args):
            pass

        def do_POST(self):
            told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

    handler = functools.partial(Handler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{served.server_address[1]}", told
        served.shutdown()


@IN_A_BROWSER
def test_in_a_browser_too_and_its_shifts_and_turns_are_ours(server, tmp_path):
    address, told = server
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    options += ["--disable-background-networking", f"--user-data-dir={tmp_path}/user"]
    command = [BROWSER, *options, f"{address}/look.html"]
    with (
        (tmp_path / "said").open("w") as said,
        subprocess.Popen(command, stdout=said, stderr=said) as browser,
    ):
        try:
            seen = told.get(timeout=180)
        finally:
            browser.kill()
    assert isinstance(seen, dict), seen
    assert "CONSOLE" not in (tmp_path / "said").read_text()
    for paper, invariant in INVARIANT.items():
        for name, change in seen[paper].items():
            assert change < 1e-4 if name in invariant else change > 0.01, (paper, name)
    image = PIXELS.view(1, 3, 4, 4)
    ours = fourier_shift(image, -torch.tensor([[0.3, 1.75]]))
    torch.testing.assert_close(torch.tensor(seen["fourier"]), ours.flatten(), rtol=0, atol=1e-5)
    turned = image.flip(3).rot90(3, (2, 3))
    assert seen["turned"] == turned.flatten().tolist()
    plain, adaptive = seen["walk"]
    assert adaptive[0] == adaptive[2] == adaptive[4] == 0.0 < adaptive[1]
    assert plain[2] > 0
    assert all(name.startswith((address, "data:")) for name in seen["requests"])
