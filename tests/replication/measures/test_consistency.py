"""Consistency is what a loop over images would count, and no draw depends on the batch."""

import itertools

import pytest
import torch
from torch import nn

from replication.images.transforms import eval_transform
from replication.measures.accuracy import accuracy
from replication.measures.consistency import (
    circular_consistency,
    standard_consistency,
    worst_shift,
)
from replication.measures.validation_split import validation_batches
from vitrail.errors import VitrailError
from vitrail.measures.shifts import circular_shift, zero_padded_shift


class Recording(nn.Module):
    """Ten columns of the image's sums as logits; keeps what it was shown."""

    def __init__(self):
        super().__init__()
        self.shown = []

    def forward(self, x):
        self.shown.append(x)
        return x.sum(dim=(1, 2)).repeat(1, 2)[:, :10]


class Invariant(nn.Module):
    """Ten quantiles of an image: a function of its pixels' values and not of their places."""

    def forward(self, x):
        return x[:, 0].flatten(1).sort(dim=1).values[:, -10:]


def test_a_shift_invariant_model_is_consistent_bit_for_bit(trained_on_digits):
    values = circular_consistency(trained_on_digits(Invariant()), erase=0.5, images=60)
    assert values["consistency"] == values["bitwise"] == 100
    assert values["max_logit_difference"] == 0


def test_consistency_counts_what_a_loop_over_the_shown_images_counts(trained_on_digits):
    """shift, Eq. 25."""
    model = Recording()
    values = circular_consistency(trained_on_digits(model), batch_size=100, images=100, pairs=2)
    _unshifted, *views = [view.sum(dim=(1, 2)) for view in model.shown]
    same, equal = [], []
    for left, right in (views[:2], views[2:]):
        for a, b in zip(left, right, strict=True):
            same.append(a.argmax() == b.argmax())
            equal.append(torch.equal(a, b))
    assert 0 < values["bitwise"] < values["consistency"] < 100
    assert values["consistency"] == pytest.approx(100 * sum(same).item() / 200)
    assert values["bitwise"] == pytest.approx(100 * sum(equal) / 200)
    differences = [(views[i] - views[i + 1]).abs().max().item() for i in (0, 2)]
    assert values["max_logit_difference"] == max(differences)
    assert (values["images"], values["pairs"]) == (100, 2)


def offset_of(image, shifted):
    """The offset that turns one image of 8 pixels into the other."""
    return next(
        offset
        for offset in itertools.product(range(8), range(8))
        if torch.equal(circular_shift(image[None], torch.tensor([offset]))[0], shifted)
    )


def test_offsets_are_uniform_over_all_integers_up_to_their_range(trained_on_digits):
    """shift, Sec. A5.2."""
    model = Recording()
    values = circular_consistency(trained_on_digits(model), batch_size=300, max_offset=0.25)
    assert values["max_offset_pixels"] == 2
    unshifted, first, second = model.shown[:3]
    views = zip(unshifted, first, second, strict=True)
    offsets = torch.tensor([(offset_of(x, a), offset_of(x, b)) for x, a, b in views])  # (300, 2, 2)
    for column in offsets.flatten(1).unbind(1):
        counts = column.bincount()
        assert len(counts) == 3
        assert counts.min() > 70  # 100 expected, with a standard deviation of 8
    assert offsets.flatten(1).double().T.corrcoef().fill_diagonal_(0).abs().max() < 0.2


def test_the_full_range_is_the_image_side(trained_on_digits):
    values = circular_consistency(trained_on_digits(Invariant(), image_size=12), images=5)
    assert values["max_offset_pixels"] == 12


@pytest.mark.parametrize(
    "measure",
    [
        lambda trained, **args: circular_consistency(trained, pairs=2, erase=0.5, **args),
        lambda trained, **args: standard_consistency(trained, modes=["zero"], max_shift=60, **args),
        lambda trained, **args: standard_consistency(trained, modes=["crop"], max_shift=60, **args),
    ],
    ids=["circular", "zero", "crop"],
)
def test_neither_batch_size_nor_workers_change_a_draw_but_the_seed_does(trained_on_digits, measure):
    def shown(batch_size, **where):
        model = Recording()
        values = measure(
            trained_on_digits(model, crop_pct=0.75, **where), images=40, batch_size=batch_size
        )
        views = (len(model.shown) * batch_size) // 40
        return values, [torch.cat(model.shown[view::views]) for view in range(views)]

    values, views = shown(40)
    for other_values, other_views in (shown(8), shown(40, workers=1)):
        assert all(map(torch.equal, views, other_views))
        assert values == other_values
    assert not all(map(torch.equal, views, shown(40, seed=1)[1]))


def test_modes_measured_together_are_those_measured_alone(trained_on_digits):
    run = trained_on_digits(Recording(), crop_pct=0.75)
    together = standard_consistency(run, max_shift=56, images=90)
    alone = [standard_consistency(run, [mode], 56, images=90) for mode in ("zero", "crop")]
    assert together == alone[0] | alone[1]
    assert together["zero/consistency"] != together["crop/consistency"]


def test_an_image_is_shifted_alike_whichever_images_are_judged(trained_on_digits):
    few, all_of_them = Recording(), Recording()
    circular_consistency(trained_on_digits(few), images=100, batch_size=599)
    circular_consistency(trained_on_digits(all_of_them), batch_size=599)
    chosen = [index * 599 // 100 for index in range(100)]
    for some, every in zip(few.shown, all_of_them.shown, strict=True):
        assert torch.equal(some, every[chosen])


def test_conditions_measured_together_are_those_measured_alone(trained_on_digits):
    conditions = {"plain": {}, 28: {"erase": 0.5}, "flipped": {"flip": "vertical"}}
    conditions["near"] = {"max_offset": 0.25}
    together = circular_consistency(
        trained_on_digits(Recording()), images=90, max_offset=0.5, conditions=conditions
    )
    assert len(together) == 4 * 8 + 3  # and the margins of all views
    for name, condition in conditions.items():
        alone = circular_consistency(
            trained_on_digits(Recording()), images=90, **{"max_offset": 0.5, **condition}
        )
        measured = {key: value for key, value in alone.items() if not key.startswith("margin/")}
        assert {key: together[f"{name}/{key}"] for key in measured} == measured
    assert together["28/top1"] != together["plain/top1"]
    assert together["near/consistency"] > together["plain/consistency"]
    assert (together["plain/max_offset_pixels"], together["near/max_offset_pixels"]) == (
        4,
        2,
    )


def test_offset_ranges_share_the_unshifted_predictions(trained_on_digits):
    model = Recording()
    ranges = {"0..2": {"max_offset": 0.25}, "0..4": {"max_offset": 0.5}}
    circular_consistency(trained_on_digits(model), images=9, conditions=ranges)
    assert len(model.shown) == 1 + 2 + 2


def test_images_are_flipped_upside_down_before_anything_else(trained_on_digits):
    """shift, Sec. A5.1."""
    plain, flipped = Recording(), Recording()
    circular_consistency(trained_on_digits(plain), images=20)
    circular_consistency(trained_on_digits(flipped), images=20, flip="vertical")
    assert torch.equal(flipped.shown[0], plain.shown[0].flip(2))


def test_erased_squares_have_every_side_up_to_the_largest_and_lie_anywhere(trained_on_digits):
    model = Recording()
    values = circular_consistency(
        trained_on_digits(model, normalization="inception"), batch_size=599, erase=0.375
    )
    assert values["max_erased_pixels"] == 3
    hole = (model.shown[0] == 0).all(dim=1)  # no byte is exactly half of 255
    areas = hole.sum(dim=(1, 2))
    sides = torch.tensor([(areas == side**2).sum().item() for side in range(4)])
    assert sides.sum() == 599
    assert sides.min() > 100  # about 150 expected
    assert hole[areas == 9].any(dim=0).all()


def test_top1_is_the_accuracy_on_the_unshifted_images(trained_on_digits):
    run = trained_on_digits(Recording(), crop_pct=0.75)
    top1 = accuracy(run)["top1"]
    assert 0 < top1 < 100
    assert circular_consistency(run)["top1"] == top1
    values = standard_consistency(run, max_shift=56)
    assert values["zero/top1"] == values["crop/top1"] == top1


def test_zero_padding_shifts_either_way_and_leaves_black_pixels(trained_on_digits):
    """shift, Sec. 5.2."""
    model = Recording()
    run = trained_on_digits(model, normalization="inception")
    values = standard_consistency(run, modes=["zero"], max_shift=64, batch_size=599)
    assert values["zero/max_shift_pixels"] == 2
    unshifted, first, _ = model.shown
    black, found = torch.full((3,), -1.0), set()
    for image, view in zip(unshifted, first, strict=True):
        found.add(
            next(
                offset
                for offset in itertools.product(range(-2, 3), range(-2, 3))
                if torch.equal(
                    zero_padded_shift(image[None], torch.tensor([offset]), black)[0], view
                )
            )
        )
    assert {axis for offset in found for axis in offset} == {-2, -1, 0, 1, 2}


def test_crops_show_real_pixels_from_all_of_the_margin(trained_on_digits):
    """shift, Sec. 5.2."""
    model = Recording()
    run = trained_on_digits(model, image_size=24, crop_pct=0.75)  # scans resized to 32
    values = standard_consistency(run, modes=["crop"], max_shift=32, batch_size=599)
    assert values["crop/max_shift_pixels"] == 3
    wide = Recording()
    accuracy(trained_on_digits(wide, image_size=27, crop_pct=0.84375), batch_size=599)  # also 32
    found = set()
    for image, view in zip(wide.shown[0], model.shown[1], strict=True):
        corners = itertools.product(range(4), range(4))
        found |= {(r, c) for r, c in corners if torch.equal(image[:, r : r + 24, c : c + 24], view)}
    assert found == set(itertools.product(range(4), range(4)))


@pytest.mark.parametrize(("side", "pixels"), [(224, 32), (256, 36), (64, 9)])
def test_a_standard_shift_is_the_same_part_of_every_image_size(trained_on_digits, side, pixels):
    run = trained_on_digits(Recording(), image_size=side, crop_pct=0.875)
    values = standard_consistency(run, images=2)
    assert values["zero/max_shift_pixels"] == values["crop/max_shift_pixels"] == pixels


def test_half_precision_is_measured_where_it_is_asked_for(trained_on_digits):
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 10))
    seen = []
    model.register_forward_hook(lambda _m, _i, logits: seen.append(logits.dtype))
    circular_consistency(trained_on_digits(model), images=4, precision="bf16")
    assert set(seen) == {torch.bfloat16}
    with pytest.raises(VitrailError, match="precision 'bf61' is unknown; did you mean 'bf16'"):
        circular_consistency(trained_on_digits(model), images=4, precision="bf61")


class Corner(nn.Module):
    """Ten logits, of which the best tells whether the first pixel is white."""

    def forward(self, x):
        return torch.eye(10)[(x[:, 0, 0, 0] == 1).long()]


@pytest.mark.parametrize("batch_size", [7, 599])
def test_the_worst_shift_counts_images_that_no_shift_changes(trained_on_digits, batch_size):
    run = trained_on_digits(Corner(), normalization="inception")
    shown = torch.cat(
        [x for _, x, _ in validation_batches(run, eval_transform(run.recipe, run.info), 50, 100)]
    )
    unchanged = (shown[:, 0] != 1).flatten(1).all(dim=1).double().mean().item()  # has no white
    assert unchanged > 0
    values = worst_shift(run, images=100, batch_size=batch_size)
    assert values == {"consistency": 100 * unchanged, "images": 100, "shifts": 64}
    assert worst_shift(trained_on_digits(Invariant()), images=9)["consistency"] == 100


def test_fewer_shifts_find_fewer_changes_and_one_may_find_none(trained_on_digits):
    run = trained_on_digits(Corner(), normalization="inception")
    some, all_of_them = (worst_shift(run, images=60, shifts=n) for n in (2, None))
    assert some["consistency"] > all_of_them["consistency"]
    assert some["shifts"] == 2


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({"max_ofset": 0.5}, "no argument 'max_ofset'; did you mean 'max_offset'"),
        ({"conditions": {"a": {"erase": 1.5}}}, "erase is 1.5; .* a number from 0 to 1"),
        ({"max_offset": -0.5}, "max_offset is -0.5"),
        ({"max_offset": "0.25"}, "max_offset is '0.25'; it counts image sides"),
        ({"flip": "sideways"}, "flip is 'sideways'; use 'vertical'"),
    ],
)
def test_an_impossible_condition_is_refused(trained_on_digits, args, sentence):
    with pytest.raises(VitrailError, match=sentence):
        circular_consistency(trained_on_digits(Recording()), **args)


def test_an_impossible_standard_shift_is_refused(trained_on_digits):
    with pytest.raises(VitrailError, match="no mode 'crops'; did you mean 'crop'"):
        standard_consistency(trained_on_digits(Recording()), modes=["crops"])
    with pytest.raises(VitrailError, match=r"crop_pct is 1, .* margin of 1 do not fit"):
        standard_consistency(trained_on_digits(Recording()), modes=["crop"])
