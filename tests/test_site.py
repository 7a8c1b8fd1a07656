"""The pages of the documentation's site are legible in small and large windows."""

import html
import json
import re
import shutil
import subprocess

import pytest

from tests.conftest import ROOT

SITE = ROOT / "build" / "docs"
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
PAGES = [
    *("docs/index", "FINDINGS", "docs/start", "docs/reproduce", "docs/cluster", "docs/audit"),
    *("docs/results", "docs/is-it-right", "docs/protocol", "docs/extensions", "docs/examples"),
    *("docs/papers/shift", "docs/papers/octic", "docs/papers/position", "docs/papers/variance"),
    *("docs/equations/shift", "configs/papers/octic/deviations", "docs/timm", "docs/targets"),
    *(
        "docs/models",
        "docs/configuration",
        "docs/commands/index",
        "docs/library",
        "docs/demo/index",
    ),
]
LOOK = """<body><iframe width="WIDTH" height="900"></iframe><script>
const frame = document.querySelector("iframe"), seen = {};
(async () => {
  for (const page of PAGES) {
    await new Promise(done => { frame.onload = done; frame.src = `SITE/${page}.html`; });
    const root = frame.contentDocument.documentElement;
    const heading = frame.contentDocument.querySelector("h1").getBoundingClientRect();
    seen[page] = [heading.top, heading.width, root.scrollWidth - root.clientWidth];
  }
  document.body.textContent = JSON.stringify(seen);
})();
</script></body>"""


@pytest.mark.skipif(
    BROWSER is None or not (SITE / "docs" / "laptop.html").is_file(),
    reason="needs chromium, and the site (make docs)",
)
@pytest.mark.parametrize("width", [390, 1280, 1440])
def test_each_page_begins_with_its_heading_and_is_no_wider_than_the_window(width, tmp_path):
    look = LOOK.replace("WIDTH", str(width)).replace("PAGES", json.dumps(PAGES))
    (tmp_path / "look.html").write_text(look.replace("SITE", f"file://{SITE}"))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    options += ["--disable-background-networking", f"--user-data-dir={tmp_path}/user"]
    done = subprocess.run(
        [BROWSER, *options, "--virtual-time-budget=60000", "--dump-dom", tmp_path / "look.html"],
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    body = re.search("<body>(.*)</body>", done.stdout, re.DOTALL)[1]
    seen = json.loads(html.unescape(body))
    assert {*seen} == {*PAGES}
    for page, (top, wide, overflow) in seen.items():
        assert 0 < top < 200, page
        assert wide > 100, page
        assert overflow == 0, page
