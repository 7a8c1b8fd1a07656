"""Losses and targets against sums written out, pair by pair and token by token."""

import math

import pytest
import torch
from torch.nn import functional

from replication.papers.octic.dinov2.crops import Masked
from replication.papers.octic.dinov2.losses import (
    Centering,
    Sinkhorn,
    cross_entropy,
    dino_losses,
    ibot_loss,
    koleo_loss,
)
from replication.training.distributed import Team

B, K, T = 3, 5, 0.1


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def alone():
    return Team(0, 1, torch.device("cpu"))


def logits(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def entropy_of_pair(student, target):
    """-sum_k p_k log softmax(s / T)_k, number by number."""
    scaled = [value / T for value in student.tolist()]
    log_sum = math.log(sum(math.exp(value) for value in scaled))
    pairs = zip(target.tolist(), scaled, strict=True)
    return -sum(p * (value - log_sum) for p, value in pairs)


def test_cross_entropy_of_a_sure_target_is_minus_its_log_probability():
    row = logits(1, K)
    target = functional.one_hot(torch.tensor([2]), K).double()
    expected = -math.log(torch.softmax(row / T, -1)[0, 2].item())
    assert cross_entropy(row, target, T).item() == pytest.approx(expected)


@pytest.mark.parametrize("views", [0, 1, 8])
def test_dino_compares_a_local_crop_with_both_targets_and_a_global_one_with_the_other(views):
    of_global, of_local = logits(2 * B, K), logits(views * B, K)
    targets = logits(2 * B, K).softmax(-1)
    pairs = max(2 * views, 1) + 2
    local = sum(
        entropy_of_pair(of_local[view * B + image], targets[target * B + image])
        for view in range(views)
        for target in range(2)
        for image in range(B)
    )
    swapped = sum(
        entropy_of_pair(of_global[view * B + image], targets[(1 - view) * B + image])
        for view in range(2)
        for image in range(B)
    )
    global_loss, local_loss = dino_losses(of_global, of_local, targets, T)
    assert local_loss.item() == pytest.approx(local / B / pairs)
    assert global_loss.item() == pytest.approx(2 * swapped / (2 * B) / pairs)


def test_the_global_loss_does_not_tell_the_views_apart():
    student, targets = logits(2 * B, K), logits(2 * B, K).softmax(-1)
    swap = [*range(B, 2 * B), *range(B)]
    there = dino_losses(student, student[:0], targets, T)[0]
    back = dino_losses(student[swap], student[:0], targets[swap], T)[0]
    assert torch.isclose(there, back, rtol=1e-14)


def test_ibot_averages_over_an_images_masked_patches_and_then_over_all_images():
    mask = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0]], dtype=torch.bool)
    student, targets = logits(4, K), logits(4, K).softmax(-1)
    rows = [entropy_of_pair(s, t) for s, t in zip(student, targets, strict=True)]
    expected = (sum(rows[:3]) / 3 + 0 + rows[3]) / 3
    assert ibot_loss(student, targets, Masked.of(mask), T).item() == pytest.approx(expected)


def test_koleo_is_minus_the_mean_log_distance_to_the_nearest():
    """On a circle: the chord of an angle a is 2 sin(a / 2)."""
    angles = torch.tensor([0.0, 0.3, 1.5, 4.0], dtype=torch.float64)
    points = 7 * torch.stack([angles.cos(), angles.sin()], 1)
    nearest = [0.3, 0.3, 1.2, 2 * math.pi - 4.0]
    expected = -sum(math.log(2 * math.sin(a / 2)) for a in nearest) / 4
    assert koleo_loss(points).item() == pytest.approx(expected, rel=1e-5)


def test_centred_targets_are_those_of_the_centre_before_and_it_moves_by_a_tenth(alone):
    centering = Centering(K, momentum=0.9).double()
    centering.centre.copy_(before := logits(K))
    batches = [logits(4, K), logits(2, K)]
    targets = centering(batches, 0.07, alone)
    for target, given in zip(targets, batches, strict=True):
        assert torch.allclose(target, ((given - before) / 0.07).softmax(-1))
    # Each micro-batch counts the same, however many patches of it are masked.
    mean = (batches[0].mean(0) + batches[1].mean(0)) / 2
    assert torch.allclose(centering.centre, 0.9 * before + 0.1 * mean)


def test_sinkhorns_rows_sum_to_one_and_its_columns_nearly_to_the_same(alone):
    batches = [logits(20, K) / 20, logits(12, K) / 20]
    targets = torch.cat(Sinkhorn()(batches, 0.05, alone))
    assert torch.allclose(targets.sum(1), torch.ones(32, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(targets.sum(0), torch.full((K,), 32 / K).double(), rtol=0.01)


def test_sinkhorn_scales_rows_and_columns_in_turns(alone):
    given = logits(6, K)
    table = (given / 0.5).exp().tolist()
    for _ in range(3):
        for k in range(K):
            column = sum(row[k] for row in table)
            for row in table:
                row[k] /= column * K
        for row in table:
            total = sum(row)
            row[:] = [value / total / 6 for value in row]
    expected = 6 * torch.tensor(table, dtype=torch.float64)
    assert torch.allclose(Sinkhorn()([given], 0.5, alone)[0], expected)
