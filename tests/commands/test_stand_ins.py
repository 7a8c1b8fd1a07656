"""The page of stand-ins says and shows what is there."""

import numpy as np
import pytest
from PIL import Image

from tests.conftest import ROOT
from vitrine.commands.stand_ins import PAGE, page, picture, stand_ins
from vitrine.plan.catalog import load_catalog

CATALOG = load_catalog(ROOT, scale="laptop")


def test_the_page_is_what_registry_code_and_scales_say():
    assert (ROOT / PAGE).read_text() == page(CATALOG), "python -m vitrine.commands.stand_ins"


@pytest.mark.parametrize("name", stand_ins(CATALOG))
def test_a_picture_shows_the_images_that_there_are(name):
    shown = np.asarray(Image.open(ROOT / PAGE.with_suffix("") / f"{name}.png"))
    np.testing.assert_array_equal(shown, np.asarray(picture(CATALOG.datasets[name])))
