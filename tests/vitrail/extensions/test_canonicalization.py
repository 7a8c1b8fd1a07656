import pytest
import timm
import torch

from tests.vitrail.shift.devices import NoFloat64
from vitrail.extensions.canonicalization import CanonicalViT, canonical
from vitrail.measures.selection_margins import selection_margins
from vitrail.shift import polyphase
from vitrail.shift.conversion import invariance_error
from vitrail.shift.geometry import roll_image

SIZE = {"img_size": 16, "patch_size": 4, "embed_dim": 12, "depth": 2, "num_heads": 2}


def noise():
    return torch.randn(3, 3, 16, 12, generator=torch.manual_seed(0), dtype=torch.float64)


def two_equal_objects():
    """On flat ground, and apart by no half of a side: on one axis only, and on both."""
    images = torch.ones(2, 3, 16, 12, dtype=torch.float64)
    for image, (row, column) in zip(images, ((8, 3), (5, 4)), strict=True):
        image[:, 2:4, 1:3] = image[:, 2 + row : 4 + row, 1 + column : 3 + column] = 2.0
    return images


@pytest.mark.parametrize("images", [noise(), two_equal_objects()], ids=["noise", "objects"])
def test_an_image_and_all_its_shifts_have_one_canonical_form(images):
    expected = canonical(images)
    for row in range(16):
        for column in range(12):
            offset = torch.tensor([[row, column]]).expand(len(images), 2)
            assert torch.equal(canonical(roll_image(images, offset)), expected)


def test_it_needs_no_float64(monkeypatch):
    images = noise().float()
    expected = canonical(images)
    monkeypatch.setattr(polyphase, "DEVICES_WITH_FLOAT64", ())
    with NoFloat64():
        assert torch.equal(canonical(images), expected)


def test_an_object_is_rolled_to_the_middle():
    image = torch.zeros(1, 3, 16, 12, dtype=torch.float64)
    image[:, :, [15, 0], 3:6] = 1.0  # across the border
    found = canonical(image)[0, 0].nonzero()
    assert (found.amin(dim=0).tolist(), found.amax(dim=0).tolist()) in (
        ([7, 4], [8, 6]),
        ([7, 5], [8, 7]),
    )


def test_an_image_that_equals_its_own_shift_has_no_certain_origin():
    model = CanonicalViT(num_classes=2, **SIZE).double()
    unique = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    unique[1, :, 8:] = unique[1, :, :8]
    with selection_margins(model) as margins:
        model(unique)
    assert (margins.smallest() > 1).tolist() == [True, False]


def test_a_canonical_vit_is_a_plain_one_made_invariant():
    torch.manual_seed(0)
    model = timm.create_model("canonical_vit_small_patch16_224", num_classes=5, **SIZE).double()
    plain = timm.create_model("vit_small_patch16_224", num_classes=5, **SIZE).double()
    plain.load_state_dict(model.state_dict())
    images = torch.randn(3, 3, 16, 16, dtype=torch.float64)
    assert isinstance(model, CanonicalViT)
    assert invariance_error(model, images) <= 1e-12
    assert invariance_error(plain, images) > 1e-3
    assert torch.equal(model.eval()(images), plain.eval()(canonical(images)))
