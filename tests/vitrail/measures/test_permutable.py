from types import SimpleNamespace

import pytest
import timm
import torch
from torch import nn
from torch.utils.data import TensorDataset

import vitrail.models  # noqa: F401
from vitrail.errors import VitrailError
from vitrail.measures.permutable import PermutablePositions, permutable
from vitrail.measures.position_shap.half_batches import draw_folds, position_shap_half_batches
from vitrail.measures.position_shap.measure import position_shap

SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "num_heads": 2, "num_classes": 5}
ADDITIVE = {
    "class token": ("vit_tiny_patch16_224", {}),
    "class token without a position": ("vit_tiny_patch16_224", {"no_embed_class": True}),
    "mean pooling": ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "avg"}),
    "distilled": ("deit_tiny_distilled_patch16_224", {}),
}
ROTARY = {
    "axial": ("vit_small_patch16_rope_224", {}),
    "mixed": ("vit_small_patch16_rope_mixed_224", {}),
    "axial and additive": ("vit_small_patch16_rope_ape_224", {}),
    "mixed and additive": ("vit_small_patch16_rope_mixed_ape_224", {}),
    "EVA-02, with a class token's position": ("eva02_tiny_patch14_224", {}),
    "registers": ("vit_medium_patch16_rope_reg1_gap_256", {}),
    "DINOv3": ("vit_small_patch16_dinov3", {}),
}
RELATIVE = {
    "relative, a network of each block": ("vit_relpos_small_patch16_224", {}),
    "relative, a shared network": ("vit_srelpos_small_patch16_224", {}),
    "relative, a table and a class token": (
        "vit_relpos_base_patch16_cls_224",
        {"rel_pos_type": "bias", "init_values": 1.0},
    ),
    "BEiT": ("beit_base_patch16_224", {}),
    "BEiT, a shared table": (
        "beit_base_patch16_224",
        {"use_rel_pos_bias": False, "use_shared_rel_pos_bias": True},
    ),
}
OF_THE_IMAGE = {
    "pos_embed_grid_size": (4, 4),
    "pretrained_cfg_overlay": {"input_size": (3, 32, 32)},
}
NAFLEX = {
    "NaFlex": ("naflexvit_base_patch16_gap", OF_THE_IMAGE),
    "NaFlex, a convolution": (
        "naflexvit_base_patch16_gap",
        {**OF_THE_IMAGE, "embed_proj_type": "conv"},
    ),
    "NaFlex, factorised": ("naflexvit_base_patch16_parfac_gap", OF_THE_IMAGE),
    "NaFlex, rotary": (
        "naflexvit_base_patch16_gap",
        {**OF_THE_IMAGE, "pos_embed": "none", "rope_type": "axial"},
    ),
    "NaFlex, interpolated": (
        "naflexvit_base_patch16_gap",
        {**OF_THE_IMAGE, "pos_embed_grid_size": (5, 6)},
    ),
    "NaFlex of a ViT": ("vit_tiny_patch16_224", {"use_naflex": True}),
}
STEERABLE = {
    family: (name, {"embed_dim": 48, "octic_depth": depth, "init_values": 1.0})
    for family, name, depth in [
        ("D8", "octic_d8_vit_small_patch16_224", 2),
        ("H8", "octic_h8_vit_small_patch16_224", 1),
        ("I8", "octic_i8_vit_small_patch16_224", 1),
        ("D2", "d2_vit_small_patch16_224", 2),
        ("H2", "h2_vit_small_patch16_224", 1),
    ]
}
MODELS = ADDITIVE | ROTARY | RELATIVE | NAFLEX | STEERABLE


def small(name, **changes):
    """A small model with random weights, large enough for positions to matter, in float64."""
    torch.manual_seed(0)
    model = timm.create_model(name, **(SMALL | {"depth": 2} | changes)).eval().double()
    for key, value in model.named_parameters():
        if value.ndim > 1:
            torch.nn.init.normal_(value, std=0.4)
        elif "gamma" in key:  # LayerScale
            torch.nn.init.ones_(value)
    return model.requires_grad_(False)


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def model(request):
    name, changes = request.param
    return small(name, **changes)


@pytest.fixture
def images():
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1)).double()


def permutations_of_patches(model, generator):
    """Permutations ``(3, 16)`` of the patches, and what they are among all positions."""
    patches = torch.stack([torch.randperm(16, generator=generator) for _ in range(3)])
    kept = model.positions - 16
    return patches, torch.cat([torch.arange(kept).expand(3, kept), patches + kept], dim=1)


def test_the_identity_is_the_models_own_forward(model, images):
    wrapped = PermutablePositions(model)
    identity = torch.arange(wrapped.positions).expand(3, -1)
    assert torch.equal(wrapped(images), model(images))
    torch.testing.assert_close(wrapped(images, identity), model(images), rtol=0, atol=1e-12)


def test_patches_that_move_with_their_positions_change_nothing(model, images):
    wrapped = PermutablePositions(model)
    patches, permutation = permutations_of_patches(wrapped, torch.Generator().manual_seed(2))
    grid = images.unfold(2, 8, 8).unfold(3, 8, 8).flatten(2, 3)  # (B, 3, 16, 8, 8)
    moved = torch.stack(
        [image[:, places] for image, places in zip(grid, patches, strict=True)]
    ).unflatten(2, (4, 4))
    moved = moved.permute(0, 1, 2, 4, 3, 5).reshape(images.shape)
    before, after = model(images), wrapped(moved, permutation)
    torch.testing.assert_close(after, before, rtol=0, atol=1e-5)
    assert (model(moved) - before).abs().max() > 1e-2
    assert (wrapped(images, permutation) - before).abs().max() > 1e-2
    assert torch.equal(model(images), before)  # the model is left as it was


def test_each_image_has_a_permutation_of_its_own(model, images):
    wrapped = PermutablePositions(model)
    _, permutation = permutations_of_patches(wrapped, torch.Generator().manual_seed(3))
    alone = torch.cat(
        [wrapped(images[row : row + 1], permutation[row : row + 1]) for row in range(3)]
    )
    torch.testing.assert_close(wrapped(images, permutation), alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", RELATIVE)
def test_a_permutation_of_relative_positions_permutes_both_sides_of_the_bias(kind, images):
    name, changes = RELATIVE[kind]
    model = small(name, **changes)
    wrapped = PermutablePositions(model)
    patches, _ = permutations_of_patches(wrapped, torch.Generator().manual_seed(2))
    expected = wrapped(images, patches)
    kept = model.num_prefix_tokens
    first = torch.arange(kept).expand(3, kept)
    places = torch.cat([first, patches + kept], dim=1)
    for module in model.modules():
        for method in ("get_bias", "_get_rel_pos_bias"):
            if hasattr(module, method) and module.relative_position_index is not None:
                bias = getattr(module, method)()[0]  # (heads, N, N)
                permuted = bias[:, places[:, :, None], places[:, None]].transpose(0, 1)
                setattr(module, method, lambda permuted=permuted: permuted)
    shared = getattr(model, "rel_pos_bias", None)
    if shared is not None:
        permuted = shared()[:, places[:, :, None], places[:, None]].transpose(0, 1)
        shared.forward = lambda: permuted
    torch.testing.assert_close(model(images), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", STEERABLE)
def test_a_steerable_model_without_an_embedding_scores_zero(family, images):
    name, changes = STEERABLE[family]
    model = small(name, **changes)
    torch.nn.init.zeros_(model.pos_embed.weight)
    data = TensorDataset(images, torch.tensor([0, 1, 2]))
    assert position_shap(permutable(model), data, permutations=4).values.tolist() == [0] * 3


@pytest.mark.parametrize("kind", ["D8", "I8", "D2", "H2", "BEiT", "NaFlex"])
def test_the_players_share_what_the_background_lacks(kind, images):
    """position, Eq. 4: phi_P + phi_I = v(N) - v(0)."""
    name, changes = MODELS[kind]
    model = permutable(small(name, **changes))
    labels = torch.tensor([0, 1, 2])
    folds = draw_folds(3, model.positions, batch_size=3)
    result = position_shap_half_batches(model, TensorDataset(images, labels), folds=folds)
    assert (result.values > 1e-3).all()
    for fold in folds:
        none = model(images[fold.background], fold.permutations).mean(dim=0)
        for sample in fold.samples:
            shared = result.phi_position[sample] + result.phi_image[sample]
            lacking = model(images[sample : sample + 1])[0] - none
            torch.testing.assert_close(shared, lacking[labels[sample]], rtol=0, atol=1e-5)


def test_the_class_tokens_position_permutes_where_it_has_a_row():
    assert PermutablePositions(small("vit_tiny_patch16_224")).positions == 17
    assert PermutablePositions(small("vit_tiny_patch16_224", no_embed_class=True)).positions == 16
    assert PermutablePositions(small("vit_small_patch16_rope_224")).positions == 16
    assert PermutablePositions(small("eva02_tiny_patch14_224")).positions == 16


def test_a_model_without_position_embeddings_ignores_the_permutation(images):
    model = small("vit_tiny_patch16_224", pos_embed="none")
    wrapped = PermutablePositions(model)
    assert torch.equal(wrapped(images, torch.arange(16).flip(0).expand(3, -1)), model(images))


def test_the_stem_of_a_hybrid_may_be_of_convolutions(images):
    model = small("vit_tiny_r_s16_p8_224", img_size=32, patch_size=1)
    wrapped = PermutablePositions(model)
    assert wrapped.positions == model.pos_embed.shape[1]
    identity = torch.arange(wrapped.positions).expand(3, -1)
    torch.testing.assert_close(wrapped(images, identity), model(images), rtol=0, atol=1e-12)


def test_a_model_that_takes_permutations_is_taken_as_it_is():
    wrapped = PermutablePositions(small("vit_tiny_patch16_224"))
    assert permutable(wrapped) is wrapped
    assert isinstance(permutable(wrapped.model), PermutablePositions)


def test_a_model_whose_positions_it_does_not_know_is_refused():
    with pytest.raises(VitrailError, match="positions of ResNet cannot be permuted"):
        permutable(timm.create_model("test_resnet"))


def test_positions_that_would_be_interpolated_are_not_permuted():
    wrapped = permutable(small("vit_tiny_patch16_224", dynamic_img_size=True))
    larger = torch.zeros(1, 3, 48, 48).double()
    assert wrapped(larger).shape == (1, 5)
    with pytest.raises(VitrailError, match=r"create the model with img_size=\(48, 48\)"):
        wrapped(larger, torch.arange(17)[None])


def test_a_model_with_positions_of_another_kind_is_refused():
    other = nn.Linear(2, 2)
    other.positions = 4  # and a forward without any permutation
    with pytest.raises(VitrailError, match="positions of Linear cannot be permuted"):
        permutable(other)


class Embeddings(nn.Module):
    """The attributes and the computation of `ViTEmbeddings` of Hugging Face's transformers."""

    def __init__(self):
        super().__init__()
        self.cls_token = nn.Parameter(torch.randn(1, 1, 24))
        self.position_embeddings = nn.Parameter(torch.randn(1, 17, 24))
        self.patch_embeddings = nn.Conv2d(3, 24, 8, 8)

    def forward(self, pixel_values):
        tokens = self.patch_embeddings(pixel_values).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls_token.expand(len(tokens), -1, -1), tokens], dim=1)
        return tokens + self.position_embeddings


class ForImageClassification(nn.Module):
    """`ViTForImageClassification`, which returns an object with `logits`, of one layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.vit = nn.Module()
        self.vit.embeddings = Embeddings()
        self.vit.layer = nn.TransformerEncoderLayer(24, 2, 48, dropout=0, batch_first=True)
        self.classifier = nn.Linear(24, 5)
        self.eval()

    def forward(self, pixel_values=None, labels=None):
        tokens = self.vit.layer(self.vit.embeddings(pixel_values))
        return SimpleNamespace(loss=None, logits=self.classifier(tokens[:, 0]))


TABLE = "vit.embeddings.position_embeddings"


def test_a_named_table_permutes_as_an_image_at_a_time_with_its_rows_in_that_order():
    model, images = ForImageClassification(), torch.randn(4, 3, 32, 32)
    draws = torch.stack([torch.randperm(17) for _ in images])
    permuting = permutable(model, table=TABLE)
    table = model.vit.embeddings.position_embeddings
    before = table.detach().clone()
    with torch.inference_mode():
        found = permuting(images, draws)
        unpermuted = permuting(images)
        expected = []
        for image, draw in zip(images, draws, strict=True):
            table.data = before[:, draw]
            expected.append(model(image[None]).logits)
            table.data = before
    torch.testing.assert_close(found, torch.cat(expected))
    assert (found - unpermuted).abs().max() > 1e-2
    assert permuting.positions == 17
    assert torch.equal(table, before)


def test_p_shap_of_a_named_table_is_zero_where_all_positions_are_the_same():
    images = torch.randn(9, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    model = ForImageClassification()
    assert position_shap(permutable(model, table=TABLE), images).mean > 0.01
    with torch.no_grad():
        model.vit.embeddings.position_embeddings.copy_(torch.randn(24))
    assert position_shap(permutable(model, table=TABLE), images).mean == 0


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("vit.embeddings.position_embedings", f"did you mean '{TABLE}'"),
        ("classifier.weight", r"has shape \(5, 24\) instead of"),
        ("fixed", "'fixed' is a buffer: make it a parameter"),
    ],
)
def test_a_table_that_cannot_be_permuted_is_refused(table, problem):
    model = ForImageClassification()
    model.register_buffer("fixed", torch.zeros(1, 5, 24))
    with pytest.raises(VitrailError, match=problem):
        permutable(model, table=table)
