"""The pages of docs/ say and show what is there."""

import re

import numpy as np
import pytest
from PIL import Image

from replication.config.settings import known_scales
from replication.plan.catalog import load_catalog
from tests.conftest import ROOT
from tools import gpu_page, stand_ins_page
from tools.docs import PAGE, PICTURES, documented, picture, stand_ins, targets_page

CATALOG = documented(ROOT)
COMMITTED = [
    page
    for page in (ROOT / "docs").rglob("*.md")
    if not {"api", "commands"} & {*page.relative_to(ROOT).parts}
]


@pytest.mark.slow
def test_the_page_of_targets_is_what_registry_code_and_scales_say():
    assert (ROOT / PAGE).read_text() == targets_page(CATALOG), "run python -m tools.docs"


@pytest.mark.parametrize("module", [gpu_page, stand_ins_page])
def test_a_page_of_measured_rows_is_what_they_say(module):
    assert (ROOT / module.PAGE).read_text() == module.page(ROOT), "run python -m tools.docs"


@pytest.mark.slow
def test_the_page_of_targets_has_every_table_and_figure_of_every_scale():
    page = (ROOT / PAGE).read_text()
    for scale in known_scales(ROOT):
        papers = load_catalog(ROOT, scale=scale, extensions=True).papers
        for name in CATALOG.papers:
            for artifact in papers[name].artifacts.values():
                assert f"`{artifact.target}`" in page


@pytest.mark.parametrize("name", stand_ins(CATALOG))
def test_a_picture_shows_the_images_that_there_are(name):
    shown = np.asarray(Image.open(ROOT / PICTURES / f"{name}.png"))
    np.testing.assert_array_equal(shown, np.asarray(picture(CATALOG.datasets[name])))


def test_every_page_of_the_site_exists():
    entries = re.findall(r"(?m)^/(.+)$", (ROOT / "docs" / "index.md").read_text())
    made = {"docs/api/modules", "docs/commands/index", "docs/configuration", "docs/models"}
    assert made < {*entries}
    assert {entry for entry in entries if not (ROOT / f"{entry}.md").is_file()} <= made
    written = {f"docs/{page.relative_to(ROOT / 'docs').with_suffix('')}" for page in COMMITTED}
    assert written - {"docs/index"} <= {*entries}
    shown = re.findall(r"{literalinclude} /(.+)", (ROOT / "docs" / "examples.md").read_text())
    assert sorted(shown) == sorted(
        f"examples/{example.name}" for example in ROOT.glob("examples/*.py")
    )
    equations = {f"docs/equations/{page.stem}" for page in ROOT.glob("docs/equations/*.md")}
    assert equations == {entry for entry in entries if entry.startswith("docs/equations/")}
