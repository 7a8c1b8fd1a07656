"""The reference pages have every command, every key and every model, with numbers that are so."""

import re

import pytest
import timm

from tools import reference
from tools.schemas import schemas


def test_each_command_has_a_page_with_its_options():
    pages = {path.stem: page for path, page in reference.command_pages().items()}
    index = pages.pop("index")
    assert {"audit", "plan", "publish", "run", "search", "verify", "why"} <= {*pages}
    assert "--no-pretrained" in pages["audit"]
    assert all(page.startswith(f"# `vitrail {name}`") for name, page in pages.items())
    assert all("Usage: vitrail " + name in page for name, page in pages.items())
    assert all(f"| [`{name}`]({name}.md)" in index for name in pages)


def test_the_keys_of_every_file_are_listed_once():
    page = reference.configuration_page()
    found = schemas()
    assert {*found} == {*reference.FILES}
    for name in ("settings", "scale", "paper"):
        for key in found[name]["properties"]:
            assert f"| `{key}`" in page
    parts = re.findall(r"^### (.+)$", page, re.MULTILINE)
    assert len(parts) == len({*parts})


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("a_swin_tiny_patch4_window7_224", "swin_tiny_patch4_window7_224"),
        ("octic_d8_vit_large_patch16_224", "vit_large_patch16_224"),
        ("harmonic_vit_small_patch16_224", "vit_small_patch16_224"),
        ("polyphase_swin_tiny_patch4_window7_224", "swin_tiny_patch4_window7_224"),
        ("cvt_13", None),
    ],
)
def test_a_variant_is_compared_with_its_plain_model(name, plain):
    assert reference.plain_of(name) == plain


def test_the_cost_of_a_model_is_that_of_the_papers_table():
    """octic, Table 2: H8(ViT-L/16)."""
    millions, gmacs, side = reference.cost_of("octic_h8_vit_large_patch16_224")
    assert (round(millions, 1), round(gmacs, 1), side) == (171.3, 37.7, 224)
    assert timm.is_model("octic_h8_vit_large_patch16_224")
