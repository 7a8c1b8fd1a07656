"""The registry of published weights is complete, and a wrong entry is one sentence."""

import pytest

from replication.config.weights import find_weights, load_weights_registry
from tests.conftest import catalog_of
from vitrail.errors import VitrailError


@pytest.fixture(scope="module")
def weights(root):
    return load_weights_registry(root / "configs" / "weights.yaml")


def test_all_weights_that_recipes_start_from_are_in_the_registry(root, weights):
    catalog = catalog_of("full")
    names = {run.recipe.model.published for run in catalog.runs.values()} - {None}
    assert names
    for name in names:
        entry = find_weights(name, weights)
        assert catalog.weights_of(name).stem == entry.name
        assert entry.suffix == ".whl" if entry.graph else entry.suffix in (".safetensors", ".pth")


def test_a_digest_is_whole_or_begins_in_the_files_name(weights):
    mmseg = weights["swin_tiny_patch4_window7_224_20220317-1cdeb081"]
    assert (mmseg.pinned, mmseg.checksum) == (False, ("sha256", "1cdeb081"))
    deit = weights["deit_small_patch16_224.fb_in1k"]
    assert (deit.pinned, deit.checksum) == (True, ("sha256", deit.sha256))
    assert weights["vit_base_patch16_224.augreg_in21k_ft_in1k"].checksum is None


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{licence: MIT, url: [example.org/w.pth]}", r"'url\.0' is 'example\.org/w\.pth': string"),
        ("{licence: MIT, url: []}", r"'url' is \[\]"),
        ("{licence: MIT, url: ['http://a/w.pth'], sha256: 0a}", r"'sha256' is '0a'"),
        ("{licence: MIT, urls: []}", "unknown key 'urls'; did you mean 'url'"),
        ("[]", "must map the name of each entry to its fields"),
    ],
)
def test_a_wrong_entry_is_one_sentence(tmp_path, entry, said):
    (tmp_path / "weights.yaml").write_text(f"swin: {entry}\n")
    with pytest.raises(VitrailError, match=said):
        load_weights_registry(tmp_path / "weights.yaml")


def test_weights_that_are_not_there_are_answered_with_the_closest(weights):
    with pytest.raises(
        VitrailError, match=r"'deit_small_224' \(add .*\); did you mean 'deit_small_p"
    ):
        find_weights("deit_small_224", weights)
