"""The pages of docs/ say and show what is there."""

import numpy as np
import pytest
from PIL import Image

from tests.conftest import ROOT
from vitrine.commands.docs import (
    STAND_INS,
    TARGETS,
    picture,
    stand_ins,
    stand_ins_page,
    targets_page,
)
from vitrine.plan.catalog import load_catalog

CATALOG = load_catalog(ROOT, scale="laptop")


@pytest.mark.parametrize(("path", "page"), [(STAND_INS, stand_ins_page), (TARGETS, targets_page)])
def test_a_page_is_what_registry_code_and_scales_say(path, page):
    assert (ROOT / path).read_text() == page(CATALOG), "run python -m vitrine.commands.docs"


@pytest.mark.parametrize("name", stand_ins(CATALOG))
def test_a_picture_shows_the_images_that_there_are(name):
    shown = np.asarray(Image.open(ROOT / STAND_INS.with_suffix("") / f"{name}.png"))
    np.testing.assert_array_equal(shown, np.asarray(picture(CATALOG.datasets[name])))
