import pytest
import torch

from vitrail.errors import VitrailError
from vitrail.octic.flip import (
    FlipBlock,
    FlipPatchEmbed,
    FlipPositionEmbedding,
    FlipVisionTransformer,
)

MICRO = {
    "img_size": 16,
    "patch_size": 4,
    "embed_dim": 16,
    "depth": 2,
    "num_heads": 2,
    "num_classes": 5,
}


def images(height=16, width=16):
    return torch.randn(2, 3, height, width, dtype=torch.float64)


def flip_features(x, grid, prefix=0):
    """Mirror features (2, B, prefix + h w, c) as if their image were mirrored."""
    x = torch.stack([x[0], -x[1]])
    patches = x[:, :, prefix:].unflatten(2, grid).flip(3).flatten(2, 3)
    return torch.cat([x[:, :, :prefix], patches], dim=2)


def test_a_block_commutes_with_the_mirroring(scrambled):
    block = scrambled(FlipBlock(16, 2, init_values=1.0))
    x = torch.randn(2, 3, 1 + 4 * 6, 8, dtype=torch.float64)
    torch.testing.assert_close(
        block(flip_features(x, (4, 6), prefix=1)),
        flip_features(block(x), (4, 6), prefix=1),
        rtol=0,
        atol=1e-12,
    )
    assert (block(x)[1] - x[1]).abs().max() > 0.1


def test_patch_features_mirror_with_the_image(scrambled):
    embed = scrambled(FlipPatchEmbed(16, 4, 3, 16))
    x = images(16, 24)
    torch.testing.assert_close(
        embed(x.flip(-1)), flip_features(embed(x), (4, 6)), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("grid", [(4, 4), (6, 8)])
def test_the_position_encoding_mirrors_with_the_grid(scrambled, grid):
    position = scrambled(FlipPositionEmbedding(4, 16))
    torch.testing.assert_close(
        flip_features(position(grid), grid), position(grid), rtol=0, atol=1e-12
    )


def test_d2_is_invariant_to_the_mirroring_but_not_to_turns(scrambled):
    model = scrambled(FlipVisionTransformer("d2", **MICRO, reg_tokens=2)).eval()
    x = images()
    torch.testing.assert_close(model(x.flip(-1)), model(x), rtol=0, atol=1e-12)
    assert (model(x.rot90(1, (-2, -1))) - model(x)).abs().max() > 1e-3


def test_the_features_of_d2_mirror_with_the_image(scrambled):
    model = scrambled(FlipVisionTransformer("d2", **MICRO, dynamic_img_size=True))
    x = images(16, 24)
    features, mirrored = (
        model.forward_features(image).unflatten(2, (2, -1)).movedim(2, 0)
        for image in (x, x.flip(-1))
    )
    torch.testing.assert_close(mirrored, flip_features(features, (4, 6), prefix=1))


def test_h2_breaks_the_symmetry_halfway(scrambled):
    model = scrambled(FlipVisionTransformer("h2", **MICRO)).eval()
    assert [type(block).__name__ for block in model.blocks] == ["FlipBlock", "Block"]
    x = images()
    assert (model(x.flip(-1)) - model(x)).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"family": "d8"}, "family 'd8' is unknown"),
        ({"num_heads": 3}, "3 heads cannot share 16 channels"),
        ({"embed_dim": 15}, "2 planes cannot share 15 channels"),
        ({"patch_size": 1}, "1 pixels; give an even patch_size"),
        ({"img_size": 12}, "3 x 3 patches has an odd side"),
    ],
    ids=str,
)
def test_impossible_arguments_are_told_in_a_sentence(kwargs, message):
    with pytest.raises(VitrailError, match=message):
        FlipVisionTransformer(**{**MICRO, **kwargs})
