"""The pages of docs/ say and show what is there."""

import re

import numpy as np
import pytest
from PIL import Image

from tests.conftest import ROOT
from tools.docs import (
    STAND_INS,
    TARGETS,
    documented,
    picture,
    stand_ins,
    stand_ins_page,
    targets_page,
)

CATALOG = documented(ROOT)
COMMITTED = [
    page
    for page in (ROOT / "docs").rglob("*.md")
    if not {"api", "commands"} & {*page.relative_to(ROOT).parts}
]


@pytest.mark.parametrize(("path", "page"), [(STAND_INS, stand_ins_page), (TARGETS, targets_page)])
def test_a_page_is_what_registry_code_and_scales_say(path, page):
    assert (ROOT / path).read_text() == page(CATALOG), "run python -m tools.docs"


@pytest.mark.parametrize("name", stand_ins(CATALOG))
def test_a_picture_shows_the_images_that_there_are(name):
    shown = np.asarray(Image.open(ROOT / STAND_INS.with_suffix("") / f"{name}.png"))
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
