import copy
from types import MethodType

import pytest
import timm
import torch

import vitrail.segmentation  # noqa: F401  # isort: skip  # imports mmseg quietly
from mmengine.structures import PixelData
from mmseg.models.decode_heads import UPerHead
from mmseg.registry import MODELS
from mmseg.structures import SegDataSample
from torch.nn import functional

from tests.vitrail.segmentation.segmenters import (
    CLASSES,
    PLAIN,
    SIDE,
    WIDTHS,
    build,
    equivariance_error,
    micro,
    noise,
    offsets,
    sizes,
    spread,
)
from vitrail.errors import VitrailError
from vitrail.segmentation.adaptive_heads import AdaptiveUPerHead
from vitrail.segmentation.backbones import Pyramid
from vitrail.shift import selection as grids
from vitrail.shift.geometry import Features, roll_image
from vitrail.shift.selection import window_offsets
from vitrail.shift.upernet import UPerNet, UPerNetDecoder

pytestmark = pytest.mark.filterwarnings("ignore:Default ``avg_non_ignore``")  # mmseg's own
both_families = pytest.mark.parametrize("family", ["swin", "swinv2"])


@both_families
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 2)])
def test_logits_shift_with_the_image(family, rows, columns):
    """shift, Eq. 2, Sec. 4."""
    side = SIDE[family]
    assert (
        equivariance_error(micro(family).double(), noise(4, 3, rows * side, columns * side))
        <= 1e-10
    )


@both_families
def test_logits_shift_with_the_image_in_fast_selection(family):
    model = micro(family, backbone={"selection": "fast"}).double()
    assert equivariance_error(model, noise(4, 3, SIDE[family], 2 * SIDE[family])) <= 1e-10


@both_families
def test_logits_shift_with_the_image_where_zeros_lie_between_features(family):
    """shift, Sec. A2.2."""
    model = micro(family, decode_head={"upsampling": "zero_insert"}).double()
    assert model.decode_head.decoder.upsampling == "zero_insert"
    assert equivariance_error(model, noise(4, 3, SIDE[family], 2 * SIDE[family])) <= 1e-10


@both_families
def test_logits_of_a_tiling_do_not_repeat_as_the_tiling_does(family):
    """No single anchor is equivariant where x = T x: Eq. 2 asks for f(x) = f(T x) = T f(x)."""
    half = SIDE[family] // 2
    tiling = noise(1, 3, half, half).tile(1, 1, 2, 2)
    with torch.inference_mode():
        logits = micro(family).double()(tiling)
    assert torch.equal(tiling.roll(half, 2), tiling)
    assert (logits.roll(half, 2) - logits).abs().max() > 1e-3


@pytest.mark.slow
@both_families
def test_logits_of_the_papers_models_shift_with_the_image(family):
    model = build(f"a_{PLAIN[family]}").double()
    side = {"swin": 224, "swinv2": 256}[family]
    image, shift = noise(1, 3, side, side), torch.tensor([[0, 0], [101, 57]])
    with torch.inference_mode():
        logits, shifted = model(roll_image(image.expand(2, -1, -1, -1), shift)).split(1)
    assert logits.std() > 0.05
    assert (shifted - roll_image(logits, shift[1:])).abs().max() <= 1e-10


@both_families
def test_the_auxiliary_logits_shift_with_the_image(family):
    model = micro(family).double()
    images = noise(4, 3, SIDE[family], 2 * SIDE[family])
    shift = offsets(4, *images.shape[2:])
    with torch.inference_mode():
        logits = model.auxiliary_head(model.backbone(images))
        shifted = model.auxiliary_head(model.backbone(roll_image(images, shift)))
    assert logits.shape == (4, CLASSES, *images.shape[2:])
    torch.testing.assert_close(shifted, roll_image(logits, shift), rtol=0, atol=1e-10)


@both_families
def test_float32_labels_of_every_pixel_shift_with_the_image(family):
    """mASCC is 100 % (Eq. 26)."""
    model = micro(family)
    images = noise(32, 3, SIDE[family], SIDE[family], dtype=torch.float32)
    shift = offsets(32, *images.shape[2:])
    with torch.inference_mode():
        labels = model(images).argmax(1)
        shifted = model(roll_image(images, shift)).argmax(1)
    assert len(labels.unique()) > 1
    agree = shifted == roll_image(labels[:, None].float(), shift)[:, 0].long()
    assert agree.double().mean() == 1


@pytest.fixture
def not_anchored(monkeypatch):
    """Leave tokens in the order of their image, which the anchor would hide."""
    monkeypatch.setattr(grids, "window_offsets", lambda x, sizes, *_: window_offsets(x, sizes))


@pytest.mark.parametrize("name", ["upsample", "put_on_pixels"])
@both_families
def test_unpooling_is_needed(family, name, not_anchored, monkeypatch):
    """The last stage has one window, so the bins of the pyramid begin where that does."""
    model, images = micro(family).double(), noise(8, 3, SIDE[family], SIDE[family])
    assert equivariance_error(model, images) <= 1e-10
    decoder = model.decode_head.decoder
    monkeypatch.setattr(decoder, name, MethodType(getattr(UPerNetDecoder, name), decoder))
    assert equivariance_error(model, images) > 1e-3


@both_families
def test_the_bins_of_the_pyramid_need_an_anchor(family, not_anchored):
    images = noise(8, 3, 2 * SIDE[family], 2 * SIDE[family])
    assert equivariance_error(micro(family).double(), images) > 1e-3


def test_circular_convolutions_are_needed(not_anchored):
    model = micro("swin").double()
    for module in model.decode_head.modules():
        if getattr(module, "padding_mode", None) == "circular":
            module.padding_mode = "zeros"
    assert equivariance_error(model, noise(8, 3, 48, 48)) > 1e-3


def arguments(**options):
    return {
        "in_channels": WIDTHS,
        "in_index": [0, 1, 2, 3],
        "channels": 16,
        "num_classes": CLASSES,
        "norm_cfg": {"type": "BN"},
        **options,
    }


def test_parameters_are_those_of_mmsegs_head():
    ours, theirs = AdaptiveUPerHead(**arguments()), UPerHead(**arguments())
    ours.load_state_dict(theirs.state_dict())
    assert [name for name, _ in ours.named_parameters()] == [
        name for name, _ in theirs.named_parameters()
    ]


def test_the_plain_decoder_is_mmsegs_head():
    torch.manual_seed(0)
    theirs = spread(UPerHead(**arguments()))
    ours = UPerNetDecoder(WIDTHS, channels=16, num_classes=CLASSES).eval()
    ours.load_state_dict(theirs.state_dict())
    sides = [(17, 24), (9, 12), (5, 6), (3, 3)]  # of an image of 65 x 95 pixels
    maps = [
        noise(2, width, *side, dtype=torch.float32)
        for width, side in zip(WIDTHS, sides, strict=True)
    ]
    stages = [Features(x, torch.zeros(2, 2), 4 * 2**level) for level, x in enumerate(maps)]
    logits = theirs(maps)
    expected = functional.interpolate(logits, (65, 95), mode="bilinear")
    assert torch.equal(ours(stages, (65, 95)), expected)


@both_families
def test_the_segmenter_in_plain_pytorch_has_the_same_names_and_bits(family):
    theirs = micro(family)
    name = {"swin": "a_swin_tiny_patch4_window7_224", "swinv2": "a_swinv2_tiny_window8_256"}[family]
    backbone = timm.create_model(name, dynamic_img_size=True, **sizes(family))
    ours = UPerNet(backbone, num_classes=CLASSES, channels=16).eval()
    unfit = ours.load_state_dict(theirs.state_dict(), strict=False)
    assert unfit.missing_keys == []
    assert {name.split(".")[0] for name in unfit.unexpected_keys} == {"auxiliary_head"}
    images = noise(2, 3, SIDE[family], 2 * SIDE[family], dtype=torch.float32)
    with torch.inference_mode():
        assert torch.equal(ours(images), theirs(images))


def test_the_plain_segmenter_in_plain_pytorch_is_mmsegs():
    theirs = build(
        "swinv2_t_upernet_ade20k",
        backbone=sizes("swinv2"),
        decode_head={"in_channels": WIDTHS, "channels": 16, "num_classes": CLASSES},
        auxiliary_head={"in_channels": WIDTHS[2], "channels": 8, "num_classes": CLASSES},
    )
    swin = timm.create_model("swinv2_tiny_window8_256", dynamic_img_size=True, **sizes("swinv2"))
    ours = UPerNet(swin, num_classes=CLASSES, channels=16).eval()
    assert ours.load_state_dict(theirs.state_dict(), strict=False).missing_keys == []
    images = noise(2, 3, 64, 128, dtype=torch.float32)
    with torch.inference_mode():
        expected = functional.interpolate(theirs(images), (64, 128), mode="bilinear")
        assert torch.equal(ours(images), expected)


def test_a_copy_of_a_head_has_its_own_weights():
    model = micro("swin")
    copied, images = copy.deepcopy(model), noise(1, 3, 48, 48, dtype=torch.float32)
    with torch.inference_mode():
        logits = model(images)
        for parameter in model.decode_head.parameters():
            parameter.zero_()
        assert torch.equal(copied(images), logits)
        assert not model(images).any()


def test_far_from_borders_it_is_mmsegs_head():
    """On grids that nothing has moved, but for what comes from across the borders."""
    torch.manual_seed(0)
    theirs = UPerHead(**arguments(pool_scales=(1,))).double().eval()
    ours = AdaptiveUPerHead(**arguments(pool_scales=(1,))).double().eval()
    ours.load_state_dict(theirs.state_dict())
    torch.nn.init.normal_(theirs.conv_seg.weight)
    ours.conv_seg.load_state_dict(theirs.conv_seg.state_dict())
    maps = [noise(1, width, 64 // 2**level, 64 // 2**level) for level, width in enumerate(WIDTHS)]
    origin = torch.zeros(1, 2, dtype=torch.int64)
    features = [Features(x, origin, 4 * 2**level) for level, x in enumerate(maps)]
    with torch.inference_mode():
        expected = functional.interpolate(theirs(maps), scale_factor=4, mode="bilinear")
        logits = ours(Pyramid(tuple(features), (256, 256)))
    inside = slice(96, 160)  # of 256 pixels: three tokens of the coarsest stage from each border
    torch.testing.assert_close(
        logits[:, :, inside, inside], expected[:, :, inside, inside], rtol=0, atol=1e-10
    )


def test_mmseg_predicts_by_the_logits_as_they_are():
    model = micro("swin")
    images = noise(2, 3, 48, 96, dtype=torch.float32)
    with torch.inference_mode():
        logits = torch.stack([sample.seg_logits.data for sample in model.predict(images)])
        assert torch.equal(logits, model(images))


def samples(count: int, height: int, width: int) -> list[SegDataSample]:
    labels = torch.randint(CLASSES, (count, 1, height, width))
    labels[:, :, :4] = 255
    return [SegDataSample(gt_sem_seg=PixelData(data=label)) for label in labels]


@both_families
def test_training_gives_every_parameter_a_gradient(family):
    model = micro(family).train()
    side = SIDE[family]
    losses = model.loss(noise(2, 3, side, side, dtype=torch.float32), samples(2, side, side))
    assert set(losses) == {"decode.loss_ce", "decode.acc_seg", "aux.loss_ce", "aux.acc_seg"}
    (losses["decode.loss_ce"] + losses["aux.loss_ce"]).backward()
    lacking = [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is None or not parameter.grad.isfinite().all()
    ]
    assert lacking == []


def test_half_precision_keeps_the_labels():
    model = micro("swin")
    images = noise(4, 3, 48, 96, dtype=torch.float32)
    with torch.inference_mode():
        labels = model(images).argmax(1)
        with torch.autocast("cpu", torch.bfloat16):
            assert (model(images).argmax(1) == labels).double().mean() > 0.9


def test_a_backbone_without_places_is_refused():
    maps = [noise(1, width, 8 // 2**level, 8 // 2**level) for level, width in enumerate(WIDTHS)]
    with pytest.raises(
        VitrailError, match=r"use AdaptiveSwin or AdaptiveSwinV2 for model\.backbone"
    ):
        AdaptiveUPerHead(**arguments()).double()(maps)


@both_families
def test_images_of_any_size_are_padded_in_evaluation(family):
    """The logits are those of the image padded by hand, at its own pixels."""
    side = SIDE[family]
    model = micro(family)
    images = noise(2, 3, side - 5, 2 * side - 20, dtype=torch.float32)
    with torch.inference_mode():
        by_hand = model(functional.pad(images, (0, 20, 0, 5)))
        assert torch.equal(model(images), by_hand[:, :, : side - 5, : 2 * side - 20])
        labels = model.predict(images)[0].pred_sem_seg.data
    assert labels.shape == (1, *images.shape[2:])


@both_families
def test_in_training_images_must_fit(family):
    """What is padded would count in the statistics of batch norms."""
    images = noise(2, 3, SIDE[family] - 4, SIDE[family], dtype=torch.float32)
    with pytest.raises(VitrailError, match="pixels do not fit windows of"):
        micro(family).train()(images)


@pytest.mark.parametrize("kind", ["UPerHead", "FCNHead"])
def test_mmsegs_own_heads_are_refused_on_an_adaptive_backbone(kind):
    one = {} if kind == "UPerHead" else {"in_channels": WIDTHS[3], "in_index": 3}
    head = MODELS.build({"type": kind, **arguments(**one)})
    with pytest.raises(VitrailError, match="use AdaptiveUPerHead and AdaptiveFCNHead, and no neck"):
        head(micro("swin").backbone(noise(1, 3, 48, 48, dtype=torch.float32)))
