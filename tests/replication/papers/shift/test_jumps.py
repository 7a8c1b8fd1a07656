"""Of every choice among whole pixels, as many images jump as is proved, and no fewer can."""

import itertools

import pytest
import timm
import torch

import vitrail.models  # noqa: F401
from replication.measures.fractional import fractional_consistency
from replication.papers.shift.jumps import grid_jumps, grid_places
from vitrail.errors import VitrailError
from vitrail.extensions.fractional_shifts import band_limited, fourier_shift

MICRO = {
    "img_size": 16,
    "patch_size": 2,
    "window_size": 4,
    "embed_dim": 8,
    "depths": (1, 1),
    "num_heads": (1, 2),
    "num_classes": 10,
}
STEPS = 40  # of a pixel, in which phases are tried
T = 1 / 8


def swin(name="a_swin_tiny_patch4_window7_224", **options):
    torch.manual_seed(0)
    model = timm.create_model(name, **MICRO, **options).double().eval()
    torch.nn.init.normal_(model.head.fc.weight)
    return model


def share_of_jumps(choice, t, direction=(1, 1)):
    """Of images at all phases, how many have another choice after a shift by t along a diagonal."""
    phases = (torch.arange(STEPS, dtype=torch.float64) + 0.5) / STEPS
    y, x = torch.meshgrid(phases, phases, indexing="ij")
    before, after = choice(y, x), choice(y + t * direction[0], x + t * direction[1])
    return torch.stack([a != b for a, b in zip(before, after, strict=True)]).any(0).double().mean()


def independent(y, x):
    return (y + 0.3).floor(), (x + 0.7).floor()


def at_once(y, x):
    return y.floor(), (x - y + y.floor()).floor()


def wild(y, x):
    """Jumps forth and back, by several pixels; changes of two fifths apart agree."""
    steps = torch.tensor([0.0, -1.0, 1.0, 0.0, -1.0], dtype=torch.float64)
    return tuple(steps[(5 * (z % 1)).long()] + z.floor() for z in (y, x))


@pytest.mark.parametrize("choice", [independent, at_once, wild])
def test_at_least_a_share_t_of_images_jumps(choice):
    y, x = torch.rand(2, 100, dtype=torch.float64)
    for rows, columns in itertools.product((-1, 0, 2), repeat=2):  # it moves with the image
        expected = [z + m for z, m in zip(choice(y, x), (rows, columns), strict=True)]
        torch.testing.assert_close(list(choice(y + rows, x + columns)), expected)
    for n, sign in itertools.product((1, 2, 4, 5, 8, 10, 20, 40), (-1, 1)):
        assert share_of_jumps(choice, 1 / n, (1, sign)) >= 1 / n - 1e-12


def test_the_share_is_t_where_rows_and_columns_jump_at_once_and_2t_minus_t2_where_independently():
    for n in (2, 4, 5, 8, 10, 20, 40):
        assert share_of_jumps(at_once, 1 / n).item() == pytest.approx(1 / n)
        assert share_of_jumps(independent, 1 / n).item() == pytest.approx(2 / n - 1 / n**2)


def test_at_other_t_a_wild_choice_may_return():
    def in_rows_alone(y, x):
        return (wild(y, x)[0],)

    assert share_of_jumps(in_rows_alone, 0.6).item() == pytest.approx(0.2)


@pytest.mark.parametrize(
    "options",
    [
        {"selection": "paper"},
        {"selection": "fast"},
        *(
            {"name": "polyphase_swin_tiny_patch4_window7_224", "selection": selection}
            for selection in ("aps", "anchoring", "lps")
        ),
    ],
    ids=lambda options: options["selection"],
)
def test_the_change_of_a_model_is_at_least_the_bound(options):
    """Monte Carlo over phases: images at uniform fractions of a pixel."""
    model = swin(**options)
    generator = torch.Generator().manual_seed(3)
    images = torch.randn(250, 3, 16, 16, dtype=torch.float64, generator=generator)
    images = fourier_shift(images, torch.rand(250, 2, dtype=torch.float64, generator=generator))
    moved = fourier_shift(images, torch.full((250, 2), T, dtype=torch.float64))
    with torch.inference_mode():
        squares = (model(moved) - model(images)).square().mean(dim=1)
    jumped = (grid_places(model, moved) != grid_places(model, images)).any(dim=1)
    share, jump = jumped.double().mean(), squares[jumped].mean().sqrt()
    change = squares.mean().sqrt()
    assert T <= share <= 1
    assert change >= share.sqrt() * jump >= T**0.5 * jump > 0


def test_the_measure_is_what_a_loop_over_images_says(trained_on_digits):
    trained = trained_on_digits(swin().float(), image_size=16)
    values = grid_jumps(trained, fraction=0.25, images=60)
    same = fractional_consistency(trained, fourier=[0.25], camera=[], images=60)
    assert values["change"] == pytest.approx(same["fourier/0.25/change"])
    assert values["bound"] == pytest.approx(0.5 * values["jump"])
    assert values["change"] >= (values["share"] / 100) ** 0.5 * values["jump"] > values["bound"]
    assert values["images"] == 60


def test_where_fewer_jump_than_the_fraction_nothing_is_called_a_bound(
    trained_on_digits, monkeypatch
):
    """As for a choice that jumps forth and back: here half of the images do at each call."""
    calls = itertools.count()

    def places(model, images):
        moved = next(calls) % 2 * (torch.arange(len(images)) % 2)
        return moved[:, None]

    monkeypatch.setattr("replication.papers.shift.jumps.grid_places", places)
    trained = trained_on_digits(swin().float(), image_size=16)
    values = grid_jumps(trained, fraction=0.6, images=20)
    assert values["share"] == 50
    assert values["jump"] > 0
    assert values["bound"] is None
    assert grid_jumps(trained, fraction=0.4, images=20)["bound"] > 0


def test_grids_that_never_move_never_jump(trained_on_digits):
    values = grid_jumps(trained_on_digits(swin(selection="none").float(), image_size=16), images=20)
    assert (values["share"], values["jump"], values["bound"]) == (0, None, None)
    assert values["change"] > 0


def test_places_move_with_the_image_and_not_with_the_anchor():
    model = swin()
    x = band_limited(torch.randn(5, 3, 16, 16, dtype=torch.float64))
    before = grid_places(model, x)
    for shift in [(1, 3), (2, 0), (8, 7)]:
        after = grid_places(model, x.roll((-shift[0], -shift[1]), (2, 3)))
        moved = before.view(5, 2, 2) - torch.tensor(shift)
        assert torch.equal(after.view(5, 2, 2), moved % torch.tensor([8, 16])[:, None])


def test_a_plain_model_is_refused(trained_on_digits):
    with pytest.raises(VitrailError, match="adaptive Swin"):
        grid_jumps(trained_on_digits(torch.nn.Identity()))
