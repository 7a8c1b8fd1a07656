import math

import pytest
import torch
from torch.testing import assert_close

from vitrail.position.embeddings.absolute import CAPE, FourierFeatures, Sinusoid, TunedSinusoid


def test_the_first_half_is_of_x_and_the_second_of_y_sine_and_cosine_by_turns(layout):
    table = Sinusoid(layout()).table(1)
    assert table.shape == (15, 16)
    x, y = 4, 2
    row = table[y * 5 + x].tolist()
    for pair in range(4):
        frequency = 1e4 ** (-2 * pair / 8)
        expected = [math.sin(x * frequency), math.cos(x * frequency)]
        assert row[2 * pair : 2 * pair + 2] == pytest.approx(expected, abs=1e-6)
        expected = [math.sin(y * frequency), math.cos(y * frequency)]
        assert row[8 + 2 * pair : 10 + 2 * pair] == pytest.approx(expected, abs=1e-6)


def test_a_tuned_sinusoid_begins_as_the_fixed_one_and_is_trained(layout):
    """position, Sec. 2."""
    fixed, tuned = Sinusoid(layout(class_token=True)), TunedSinusoid(layout(class_token=True))
    assert_close(tuned.table(1)[1:], fixed.table(1))
    assert (tuned.table(1)[0] == 0).all()
    assert [parameter.shape for parameter in tuned.parameters()] == [(16, 16)]
    assert not [*fixed.parameters()]


def test_an_mlp_sees_sines_and_cosines_of_mixtures_of_x_and_y(layout):
    ff = FourierFeatures(layout())
    seen = []
    ff.mlp.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    assert ff.table(1).shape == (15, 16)
    x, y = 4, 2
    phase = ff.frequencies.weight @ torch.tensor([x, y], dtype=torch.float32)
    expected = torch.cat([phase.cos(), phase.sin()]) / math.sqrt(16)
    assert_close(seen[0][y * 5 + x], expected)


def test_the_mixtures_begin_with_the_std_of_gamma_to_the_minus_2(layout):
    weights = torch.cat([FourierFeatures(layout()).frequencies.weight for _ in range(100)])
    assert weights.std().item() == pytest.approx(0.16, rel=0.1)


def test_cape_has_sinusoids_of_places_between_minus_1_and_1(layout):
    cape = CAPE(layout()).eval()
    x, y = -1 + 2 * 4 / 4, -1 + 2 * 1 / 2  # column 4 of 5, row 1 of 3
    row = cape.table(1)[1 * 5 + 4]
    for i in range(8):
        length = 10 ** (i / 7)
        phase = math.pi * length * (math.cos(i) * x + math.sin(i) * y)
        assert row[i].item() == pytest.approx(math.cos(phase), abs=1e-4)
        assert row[8 + i].item() == pytest.approx(math.sin(phase), abs=1e-4)


def test_cape_scales_patches_but_no_class_token(layout):
    cape = CAPE(layout(class_token=True)).eval()
    x = torch.randn(2, 16, 16)
    assert_close(cape.add(x, None)[:, 1:], 4 * x[:, 1:] + cape.table(2))
    assert torch.equal(cape.add(x, None)[:, 0], x[:, 0])


def test_in_training_every_image_has_its_own_shifts_and_scale(layout):
    cape = CAPE(layout()).train()
    places = cape._augmented(2000)
    assert places.shape == (2000, 15, 2)
    # The shifts of an image's patches: by up to half of everything and of a neighbour's distance.
    limit = 1.4 * (1 + 0.5 + 0.5 * cape.step)
    assert (places.abs() <= limit).all()
    assert (places.abs().amax((0, 1)) > 0.85 * limit).all()
    assert places.mean((0, 1)).abs().max() < 0.03
    # Each patch has a shift of its own: without, all of a row are at equal distances.
    steps = places[:, 1:5, 0] - places[:, :4, 0]
    assert (steps.std(1) > 0.05 * cape.step[0]).float().mean() > 0.9
    # Patches of an image keep their distances, up to the scale and the shift of each.
    width = (places[:, 4::5, 0] - places[:, ::5, 0]).mean(1) / 2
    assert width.max() < 1.4 * (1 + 0.25)
    assert width.log().std().item() == pytest.approx(math.log(1.4) / math.sqrt(3), rel=0.3)
