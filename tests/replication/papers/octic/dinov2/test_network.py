"""Backbones with masks and crops of two sizes, the head, and residual branches on parts of a batch.

At 224 and 96 pixels patches of 16 make grids of 14 and 6.
"""

import pytest
import torch
from torch.nn import functional

from replication.papers.octic.dinov2.crops import Masked
from replication.papers.octic.dinov2.network import (
    Head,
    Network,
    build_model,
    compile_blocks,
    drop_paths,
)
from vitrail.errors import VitrailError
from vitrail.octic.group import ELEMENTS, transform
from vitrail.octic.vit import OcticVisionTransformer

FULL = {"img_size": 224, "patch_size": 16, "embed_dim": 32, "depth": 2, "num_heads": 2}
DENSE = {"name": "masked_vit_large_patch16_224", "args": {"init_values": 1.0}}
OCTIC = {"args": {"init_values": 1.0, "init_std": 0.15, "cls_std": 1e-6}}
MODELS = {
    "vit": DENSE,
    "h2": {"name": "h2_vit_large_patch16_224", **OCTIC},
    "i8": {"name": "octic_i8_vit_large_patch16_224", **OCTIC},
    "h8": {"name": "octic_h8_vit_large_patch16_224", **OCTIC},
    "d8": {"name": "octic_i8_vit_large_patch16_224", "args": {**OCTIC["args"], "octic_depth": 2}},
}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def recipe_of(make_recipe):
    def recipe_of(name, **args):
        delta = {"model": MODELS[name], "data": {"image_size": 224}}
        recipe = make_recipe(delta)
        given = {**FULL, **MODELS[name]["args"], **args}
        return recipe.model_copy(update={"model": recipe.model.model_copy(update={"args": given})})

    return recipe_of


@pytest.fixture
def backbone(recipe_of):
    """Build a backbone in float64, its tokens and positions as large as its weights."""

    def build(name, **args):
        model = build_model(recipe_of(name, **args), 10).double().eval()
        for parameter in (model.cls_token, model.mask_token):
            torch.nn.init.normal_(parameter, std=0.5)
        return model

    return build


def images(side, batch=1):
    return torch.randn(batch, 3, side, side, dtype=torch.float64)


def random_mask(side, batch=1):
    return torch.rand(batch, (side // 16) ** 2) < 0.4


@pytest.mark.parametrize("name", ["i8", "d8"])
@pytest.mark.parametrize("side", [224, 96])
def test_i8_and_d8_keep_the_class_token_and_permute_the_patches(backbone, name, side):
    model, x, mask, grid = backbone(name), images(side), random_mask(side), side // 16
    with torch.no_grad():
        tokens = model.forward_features(x, mask)
        patches = tokens[:, 1:].mT.unflatten(2, (grid, grid))
        for element in ELEMENTS:
            turned_mask = transform(mask.view(-1, grid, grid), element).flatten(1)
            turned = model.forward_features(transform(x, element), turned_mask)
            expected = transform(patches, element).flatten(2).mT
            assert (turned[:, 0] - tokens[:, 0]).abs().max() < 1e-12
            assert (turned[:, 1:] - expected).abs().max() < 1e-12
    assert patches.std() > 0.1
    assert not torch.allclose(tokens, model.forward_features(x), atol=1e-3)


@pytest.mark.parametrize("name", ["vit", "h2", "h8"])
def test_the_other_families_do_not(backbone, name):
    model, x = backbone(name), images(96)
    with torch.no_grad():
        change = model(transform(x, "r")) - model(x)
    assert change.abs().max() > 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_a_masked_patch_is_not_seen(backbone, name):
    """Whatever lies under the mask, the tokens are the same; features are C channels."""
    model, mask = backbone(name), torch.zeros(1, 36, dtype=torch.bool)
    mask[0, 7] = True  # row 1, column 1
    x = images(96)
    other = x.clone()
    other[:, :, 16:32, 16:32] = 5.0
    with torch.no_grad():
        assert torch.equal(model.forward_features(x, mask), model.forward_features(other, mask))
        assert not torch.equal(model.forward_features(x), model.forward_features(other))
        assert model(x).shape == (1, 32)


@pytest.mark.parametrize("name", MODELS)
def test_a_bias_of_the_keys_has_no_effect(backbone, name):
    """It adds q b to all scores of a query, which the softmax takes away; so it has no gradient."""
    model, x = backbone(name), images(96)
    before = model(x)
    before.square().sum().backward()
    for block in model.blocks:
        query, key, value = block.attn.qkv.bias.grad.chunk(3)
        assert key.abs().max() < 1e-10 * min(query.abs().max(), value.abs().max())
        block.attn.qkv.bias.data.chunk(3)[1].normal_()
    assert (model(x) - before).abs().max() < 1e-12


def test_tokens_start_as_dinov2s_do(recipe_of):
    for name in MODELS:
        model = build_model(recipe_of(name), 10)
        assert 0 < model.cls_token.std() < 3e-6, name
        assert not model.mask_token.any(), name


def test_dense_positions_are_resampled_over_an_offset_without_antialiasing(backbone):
    """Bicubic interpolation at 14 / 6.1 x (i + 0.5) - 0.5, written out for one row."""
    model = backbone("vit")
    table = torch.zeros(14, 14, dtype=torch.float64)
    table[:] = torch.arange(14) ** 2  # the same in every row
    model.pos_embed.data[:, 1:] = table.flatten()[None, :, None]
    found = model.positions((6, 6))
    assert torch.equal(found[:, 0], model.pos_embed[:, 0])
    row = found[0, 1:, 0].view(6, 6)[2]

    def cubic(t, a=-0.75):
        t = abs(t)
        if t <= 1:
            return (a + 2) * t**3 - (a + 3) * t**2 + 1
        return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0

    for i in range(6):
        x = 14 / 6.1 * (i + 0.5) - 0.5
        base = int(x // 1)
        expected = sum(
            cubic(x - k) * table[0, min(max(k, 0), 13)].item() for k in range(base - 1, base + 3)
        )
        assert row[i].item() == pytest.approx(expected, rel=1e-5)
    assert torch.equal(model.positions((14, 14)), model.pos_embed)


def test_the_heads_logits_are_cosines_until_its_lengths_are_trained():
    head = Head(6, 8, 4, 5).double()
    tokens = torch.randn(3, 6, dtype=torch.float64)
    directions = functional.normalize(head.last_layer.parametrizations.weight.original1, dim=1)
    points = functional.normalize(head.mlp(tokens), dim=1)
    assert torch.allclose(head(tokens), points @ directions.T)
    head.last_layer.parametrizations.weight.original0.data[2] = 3.0
    assert torch.allclose(head(tokens)[:, 2], 3 * points @ directions[2])
    assert head.last_layer.parametrizations.weight.original0.requires_grad
    assert head.last_layer.bias is None


@pytest.mark.parametrize("separate", [False, True])
def test_a_network_projects_class_tokens_and_chosen_patches(make_recipe, separate):
    recipe = make_recipe({"head": {"separate": separate}})
    network = Network(recipe, build_model(recipe, 10)).eval()
    crops = [torch.randn(4, 3, 16, 16), torch.randn(6, 3, 8, 8)]
    mask = torch.rand(4, 16) < 0.3
    with torch.no_grad():
        seen = network(crops, [mask, None], Masked.of(mask).places)
        tokens = network.backbone.forward_features(crops[0], mask)
        head = network.patch_head if separate else network.head
        assert torch.equal(seen.features, tokens[:, 0])
        assert torch.allclose(seen.logits[0], network.head(tokens[:, 0]), atol=1e-6)
        assert torch.allclose(seen.patch_logits, head(tokens[:, 1:][mask]), atol=1e-6)
    assert [len(of_set) for of_set in seen.logits] == [4, 6]


def test_a_dense_branch_sees_a_part_of_the_batch_and_is_scaled_by_its_share(backbone):
    model = backbone("vit")
    block, x = model.blocks[0], torch.randn(10, 5, 32, dtype=torch.float64)
    attended = block.ls1(block.attn(block.norm1(x)))
    plain = block(x)
    drop_paths(model, 0.3)
    assert torch.equal(block(x), plain)
    model.train()
    block.mlp.fc2.weight.data.zero_()
    block.mlp.fc2.bias.data.zero_()
    for _ in range(3):
        change = (block(x) - x).flatten(1)
        seen = change.any(1)
        assert seen.sum() == 7
        assert torch.allclose(change[seen], (attended * 10 / 7).flatten(1)[seen], atol=1e-12)


def test_each_image_skips_an_octic_branch_on_its_own(backbone):
    """So their number differs from draw to draw; what is left is scaled by the chance."""
    model = backbone("i8")
    block, x = model.blocks[0], torch.randn(8, 10, 5, 4, dtype=torch.float64)
    attended = block.ls1(block.attn(block.norm1(x)))
    plain = block(x)
    drop_paths(model, 0.3)
    assert torch.equal(block(x), plain)
    model.train()
    for weight in (block.mlp.fc2.weight, block.mlp.fc2.weight_e, block.mlp.fc2.bias):
        weight.data.zero_()
    counts = []
    for _ in range(100):
        change = (block(x) - x).movedim(-3, 0).flatten(1)
        seen = change.any(1)
        expected = (attended / 0.7).movedim(-3, 0).flatten(1)
        assert torch.allclose(change[seen], expected[seen], atol=1e-12)
        counts.append(seen.sum().item())
    assert len(set(counts)) > 3
    assert sum(counts) / 1000 == pytest.approx(0.7, abs=0.06)  # four standard deviations


@pytest.mark.parametrize("name", ["vit", "h8"])
def test_compiled_blocks_keep_their_names_and_skip_branches(backbone, name, monkeypatch):
    model = backbone(name)
    names, compiled = list(model.state_dict()), []

    def compiler(function, *args, **kwargs):
        def call(*given):
            compiled.append(function)
            return function(*given)

        return call

    monkeypatch.setattr(torch, "compile", compiler)
    drop_paths(model, 0.3)
    compile_blocks(model)
    model.train()(images(96, batch=4))
    assert len(compiled) == len(model.blocks)
    assert list(model.state_dict()) == names


def test_a_model_without_a_class_token_is_refused(make_recipe):
    backbone = OcticVisionTransformer(
        "h8", num_heads=2, depth=2, mask_token=True, class_token=False, global_pool="avg"
    )
    with pytest.raises(VitrailError, match=r"has no class token, .* leave class_token=True"):
        Network(make_recipe(), backbone)


def test_a_model_without_a_mask_token_is_refused(make_recipe):
    recipe = make_recipe()
    plain = recipe.model.model_copy(update={"name": "vit_tiny_patch16_224", "args": {}})
    with pytest.raises(VitrailError, match="refuses args"):
        build_model(recipe.model_copy(update={"model": plain}), 10)
    with pytest.raises(VitrailError, match="has no mask token: take masked_vit"):
        Network(recipe, torch.nn.Linear(2, 2))
