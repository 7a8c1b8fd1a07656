"""A recipe's segmenter without training is equivariant exactly where its backbone is adaptive."""

import vitrail.segmentation  # noqa: F401  # isort: skip
from pathlib import Path

import pytest

from replication.context import Described
from replication.measures.segmentation_equivariance import segmenter_equivariance
from replication.plan.catalog import load_catalog

pytestmark = pytest.mark.filterwarnings("ignore:Default ``avg_non_ignore``")  # mmseg's own


@pytest.fixture(scope="module")
def changes():
    paper = load_catalog(scale="laptop").paper("shift")

    def measure(recipe, **options):
        run = paper.run(recipe)
        described = Described("cpu", Path(), 0, recipe=run.recipe, info=run.dataset)
        return segmenter_equivariance(described, **options)

    return measure


@pytest.mark.parametrize("upsampling", [None, "zero_insert"])
def test_an_adaptive_segmenter_keeps_every_bit(changes, upsampling):
    """shift, Eq. 2, Sec. 4, Sec. A2.2."""
    options = {"decode_head": {"upsampling": upsampling}} if upsampling else {}
    values = changes("a_swin_upernet-ade20k-circular", **options)
    assert values == {"equal": 100, "error": 0, "relative": 0, "changed": 0}


def test_the_control_does_not_and_its_pixels_change(changes):
    values = changes("swin_upernet-ade20k-circular")
    assert values["equal"] == 0
    assert values["relative"] > 1e-3
    assert 0 < values["changed"] < 100
