import inspect

import pytest
import torch
from timm.models._manipulate import reinit_non_persistent_buffers
from torch import nn
from torch.nn import functional
from torch.testing import assert_close

from vitrail.errors import VitrailError
from vitrail.position.embeddings import EMBEDDINGS
from vitrail.position.vit import PositionAttention, PositionViT

ALL = list(EMBEDDINGS)
PLAIN = ["ape", "sin", "sin-tuned", "ff", "cape"]
ADDITIVE = [*PLAIN, *(f"auto-{name}" for name in PLAIN)]
WITH_A_ROW_FOR_CLS = ["ape", "sin-tuned", "auto-ape", "auto-sin-tuned"]
TOKENS = pytest.mark.parametrize("class_token", [False, True])


def permutations(model, batch=3):
    return torch.stack([torch.randperm(model.positions) for _ in range(batch)])


def close(a, b):
    assert_close(a, b, rtol=0, atol=1e-10)


def moved(images, permutation, side=4, patch=4):
    """Put patch n of an image in the place ``permutation[n]``."""
    patches = functional.unfold(images, patch, stride=patch)
    places = permutation.unsqueeze(1).expand_as(patches)
    patches = torch.empty_like(patches).scatter_(2, places, patches)
    return functional.fold(patches, (side * patch, side * patch), patch, stride=patch)


@TOKENS
@pytest.mark.parametrize("embedding", ALL)
def test_the_identity_changes_nothing(scrambled, images, embedding, class_token):
    model = scrambled(embedding, class_token=class_token)
    identity = torch.arange(model.positions).expand(3, -1)
    close(model(images, identity), model(images))


@TOKENS
@pytest.mark.parametrize("embedding", ALL)
def test_a_permutation_matters_to_all_but_none(scrambled, images, embedding, class_token):
    model = scrambled(embedding, class_token=class_token)
    change = (model(images, permutations(model)) - model(images)).abs().amax(1)
    if embedding == "none":
        assert (change == 0).all()
    else:
        assert (change > 1e-4).all()


@pytest.mark.parametrize(
    ("embedding", "class_token"),
    [(name, False) for name in ALL]
    + [(name, True) for name in ALL if name not in WITH_A_ROW_FOR_CLS],
)
def test_permuting_positions_is_moving_the_patches(scrambled, images, embedding, class_token):
    """So it is positions that permute, and the same way in all layers (position, Eq. 1)."""
    model = scrambled(embedding, class_token=class_token, depth=3)
    permutation = permutations(model)
    close(model(images, permutation), model(moved(images, permutation)))


@TOKENS
@pytest.mark.parametrize("embedding", ADDITIVE)
def test_a_permuted_additive_embedding_is_its_table_with_permuted_rows(
    scrambled, images, monkeypatch, embedding, class_token
):
    """position, Sec. 2, Eq. 2."""
    model = scrambled(embedding, class_token=class_token)
    permutation = permutations(model, 1)
    permuted = model(images, permutation.expand(3, -1))
    rows = model.pos_embed.table(1)[permutation[0]]
    monkeypatch.setattr(model.pos_embed, "table", lambda batch: rows)
    close(permuted, model(images))


@pytest.mark.parametrize("embedding", ALL)
def test_each_image_has_a_permutation_of_its_own(scrambled, images, embedding):
    model = scrambled(embedding, class_token=True)
    permutation = permutations(model)
    alone = [model(images[i : i + 1], permutation[i : i + 1]) for i in range(3)]
    close(model(images, permutation), torch.cat(alone))


@TOKENS
def test_only_a_learned_table_has_a_row_for_the_class_token(micro, class_token):
    for embedding in ALL:
        own = class_token and embedding in WITH_A_ROW_FOR_CLS
        assert micro(embedding, class_token=class_token).positions == 16 + own


@TOKENS
@pytest.mark.parametrize("embedding", [*PLAIN, "rope"])
def test_auto_pe_with_gamma_1_is_the_plain_embedding(scrambled, images, embedding, class_token):
    """position, Sec. 4, Eq. 6."""
    plain = scrambled(embedding, class_token=class_token)
    auto = scrambled(f"auto-{embedding}", class_token=class_token)
    inner = "pos_embed." if embedding == "rope" else "pos_embed.embedding."
    weights = {k.replace("pos_embed.", inner): v for k, v in plain.state_dict().items()}
    missing, unexpected = auto.load_state_dict(weights, strict=False)
    assert (missing, unexpected) == (["pos_embed.gamma"], [])
    torch.nn.init.ones_(auto.pos_embed.gamma)
    permutation = permutations(plain)
    close(auto(images), plain(images))
    close(auto(images, permutation), plain(images, permutation))


@TOKENS
@pytest.mark.parametrize("embedding", [*PLAIN, "rope"])
def test_auto_pe_with_gamma_0_is_no_embedding(scrambled, images, embedding, class_token):
    none = scrambled("none", class_token=class_token)
    auto = scrambled(f"auto-{embedding}", class_token=class_token)
    auto.load_state_dict(none.state_dict(), strict=False)
    torch.nn.init.zeros_(auto.pos_embed.gamma)
    if embedding == "rope":  # has no such biases
        for block in none.blocks:
            torch.nn.init.zeros_(block.attn.qkv.bias)
    if embedding == "cape":  # scales the patches up
        none.patch_embed.weight.data *= 4
        none.patch_embed.bias.data *= 4
    close(auto(images), none(images))
    close(auto(images, permutations(auto)), none(images))


@pytest.mark.parametrize(
    ("embedding", "gamma"),
    [("rope", None), ("auto-rope-shared", -1.7)]
    + [("auto-rope", gamma) for gamma in (-1.7, 0.3, 11.0)],
)
def test_rope_is_exactly_relative_whatever_gamma(scrambled, images, embedding, gamma):
    """position, App. B, Eq. 11-12."""
    model = scrambled(embedding)
    if gamma is not None:
        torch.nn.init.constant_(model.pos_embed.gamma, gamma)
    before = model(images)
    model.pos_embed.coordinates = model.pos_embed.coordinates + torch.tensor([3.0, -5.5])
    close(model(images), before)
    model.pos_embed.coordinates *= 1.5
    assert (model(images) - before).abs().amax() > 1e-4


@pytest.mark.parametrize("embedding", ALL)
def test_a_model_made_on_the_meta_device_equals_one_made_here(scrambled, micro, images, embedding):
    """Its constants, which are in no checkpoint, are computed again as timm does."""
    model = scrambled(embedding, class_token=True).float()
    meta = micro(embedding, class_token=True, device="meta").eval()
    assert {tensor.device.type for tensor in meta.state_dict().values()} == {"meta"}
    loaded = meta.to_empty(device="cpu")
    for buffer in loaded.buffers():
        buffer.fill_(7)  # what memory held before
    loaded.load_state_dict(model.state_dict())
    reinit_non_persistent_buffers(loaded)
    assert torch.equal(loaded(images.float()), model(images.float()))


@pytest.mark.parametrize("embedding", ALL)
def test_a_model_is_made_in_the_precision_asked_for(scrambled, micro, images, embedding):
    """Of half precision it differs from float32 as its weights and activations are rounded."""
    model = scrambled(embedding, class_token=True).float()
    half = micro(embedding, class_token=True, dtype=torch.bfloat16).eval()
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}
    half.load_state_dict(model.state_dict())
    expected = model(images.float())
    error = (half(images.bfloat16()).float() - expected).abs().amax()
    assert error < 0.05 * expected.abs().amax()


@pytest.mark.parametrize("embedding", ALL)
def test_training_augments_cape_and_nothing_else(scrambled, images, embedding):
    model = scrambled(embedding, class_token=True)
    assert torch.equal(model(images), model(images))
    model.train()
    assert torch.equal(model(images), model(images)) == ("cape" not in embedding)


def test_dropout_acts_in_training_only(micro, images):
    model = micro("ape", drop_rate=0.5).double()
    assert not torch.equal(model(images), model(images))
    model.eval()
    assert torch.equal(model(images), model(images))


@pytest.mark.parametrize("place", ["attention", "projection", "mlp"])
def test_dropout_acts_at_every_place_of_a_layer(micro, images, place):
    """Alone, too: all other dropouts are turned off (Appx. G drops at each of them)."""
    model = micro("ape", drop_rate=0.5).double()
    own = {"projection": "proj_drop", "mlp": "mlp"}.get(place)
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout) and (own is None or own not in name):
            module.p = 0.0
        if isinstance(module, PositionAttention) and place != "attention":
            module.drop_rate = 0.0
    assert not torch.equal(model(images), model(images))


def test_the_defaults_are_those_of_appendix_g():
    """position, App. G."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(PositionViT).parameters.items()
    }
    expected = {"patch_size": 4, "embed_dim": 192, "depth": 9, "num_heads": 12, "drop_rate": 0.1}
    assert {name: defaults[name] for name in expected} == expected
    assert 192 * defaults["mlp_ratio"] == 384


@TOKENS
@pytest.mark.parametrize("embedding", ALL)
def test_every_parameter_gets_a_gradient(micro, embedding, class_token):
    # Eight patches a side have all offsets that iRPE tells apart.
    model = micro(embedding, class_token=class_token, img_size=32)
    model(torch.randn(8, 3, 32, 32)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name
    for name, parameter in model.pos_embed.named_parameters():
        assert (parameter.grad != 0).all(), name  # every row, offset, bucket and frequency


def test_recomputed_layers_have_the_same_gradients(scrambled, images):
    gradients = []
    model = scrambled("auto-rope").train()
    for enable in (False, True):
        model.set_grad_checkpointing(enable)
        model.zero_grad()
        model(images, torch.arange(16).flip(0).expand(3, -1)).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    close(*gradients)


def test_the_weights_begin_as_the_paper_says(micro):
    model = micro("ape", class_token=True, embed_dim=192, num_heads=12)
    mlp = model.blocks[0].mlp
    assert mlp.fc1.weight.abs().max().item() == pytest.approx((6 / 576) ** 0.5, rel=0.01)
    assert mlp.fc1.bias.std().item() == pytest.approx(1e-6, rel=0.2)
    assert not model.cls_token.any()
    assert model.pos_embed.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert model.norm.eps == model.blocks[1].norm2.eps == 1e-6


def test_a_model_takes_images_that_are_no_squares(micro):
    model = micro("rpe", img_size=(8, 16))
    images = torch.randn(2, 3, 8, 16)
    assert model.positions == 8
    assert model(images, torch.randperm(8).expand(2, -1)).shape == (2, 5)


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"embedding": "rop"}, "unknown embedding 'rop'; did you mean 'rope'"),
        ({"img_size": 18}, "give a multiple of patch_size 4"),
        ({"num_heads": 3}, "3 heads cannot share 16 channels"),
        ({"embedding": "rope", "num_heads": 8}, "'rope' splits channels by 4, which 2 "),
        ({"embedding": "sin", "embed_dim": 18}, "'sin' splits channels by 4, which 18 "),
        ({"embedding": "auto-ff", "embed_dim": 3, "num_heads": 1}, "'ff' splits channels by 2"),
        ({"embedding": "cape", "embed_dim": 3, "num_heads": 1}, "'cape' splits channels by 2"),
    ],
)
def test_an_impossible_model_is_refused_in_one_sentence(micro, kwargs, sentence):
    with pytest.raises(VitrailError, match=sentence):
        micro(**{"embedding": "ape", **kwargs})


def test_images_and_permutations_of_another_shape_are_refused(micro):
    model = micro("ape", class_token=True)
    with pytest.raises(VitrailError, match="takes images of 16 x 16 pixels, not 16 x 20"):
        model(torch.zeros(1, 3, 16, 20))
    with pytest.raises(VitrailError, match=r"shape \(1, 16\); give \(1, 17\)"):
        model(torch.zeros(1, 3, 16, 16), torch.arange(16).unsqueeze(0))
