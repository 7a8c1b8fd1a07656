import math

import numpy as np
import pytest
import timm
import torch
from torch import nn
from torch.utils.data import TensorDataset

import vitrail.models  # noqa: F401
from tests.vitrail.measures.position_shap.models import (
    Tokens,
    assert_same,
    corner_samples,
    samples,
)
from vitrail.errors import VitrailError
from vitrail.measures.outputs import UNKNOWN
from vitrail.measures.permutable import permutable
from vitrail.measures.position_shap.half_batches import draw_folds, position_shap_half_batches
from vitrail.measures.position_shap.measure import position_shap
from vitrail.measures.position_shap.sweep import (
    default_permutations,
    draw_order,
    draw_permutations,
)


@pytest.fixture(scope="module")
def corners():
    return corner_samples()


@pytest.mark.parametrize("k", [1, 2, 4])
def test_sweep_is_its_definition(k):
    data = samples(9)
    images, labels = data.tensors
    result = position_shap(Tokens(), data, permutations=k, batch_size=4, seed=2)
    draws = [draw_permutations(k, 16, "P-SHAP sweep", 2, index) for index in range(9)]
    f = Tokens()
    clean = f(images).detach()
    permuted = torch.stack([f(images[[i] * k], draws[i]).detach() for i in range(9)])  # (9, K, C)
    parts = (slice(None), slice(k // 2), slice(k // 2, None))[: 3 if k > 1 else 1]
    for i, c in enumerate(labels.tolist()):
        others = [index for index in range(9) if index != i]
        shares = []
        for part in parts:
            both, image = clean[i, c], permuted[i, part, c].mean()
            position, none = clean[others, c].mean(), permuted[others, part, c].mean()
            phi_position = 0.5 * (position - none) + 0.5 * (both - image)
            phi_image = 0.5 * (image - none) + 0.5 * (both - position)
            shares.append((abs(phi_position) / (abs(phi_position) + abs(phi_image))).item())
            if part == slice(None):
                found = result.phi_position[i], result.phi_image[i], result.values[i]
                expected = phi_position, phi_image, torch.tensor(shares[0], dtype=torch.float64)
                torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
                together = both - image - position + none
                torch.testing.assert_close(result.interaction[i], together, rtol=0, atol=1e-12)
        debiased = shares[0] if k == 1 else 2 * shares[0] - (shares[1] + shares[2]) / 2
        assert result.debiased[i].item() == pytest.approx(debiased, abs=1e-12)
    assert result.correct.tolist() == (clean.argmax(dim=1) == labels).tolist()
    assert result.mean == pytest.approx(result.debiased[result.correct].mean().item())


def test_the_bias_of_few_permutations_is_gone_against_the_shapley_values_of_all(corners):
    model, data, exact = corners
    swept = [position_shap(model, data, permutations=2, seed=seed) for seed in range(20)]
    plain = np.mean([result.values[result.correct].mean().item() for result in swept]) - exact
    mended = np.mean([result.mean for result in swept]) - exact
    assert plain > 5e-4
    assert abs(mended) < plain / 2


def learned(strength):
    """`Tokens` whose head is fitted to four noisy patterns, and 500 more samples of these."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(4, 3, 8, 8, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (1000,), generator=generator)
    noise = torch.randn(1000, 3, 8, 8, generator=generator, dtype=torch.float64)
    images = 0.8 * patterns[labels] + 0.6 * noise
    model = Tokens(strength, classes=32)
    model.head = nn.Parameter(torch.eye(32, dtype=torch.float64))
    features = model(images[:500]).detach()
    target = nn.functional.one_hot(labels[:500], 4).double() - 0.25
    penalty = torch.eye(32, dtype=torch.float64)
    ridge = torch.linalg.solve(features.T @ features + penalty, features.T @ target)
    model.head = nn.Parameter(ridge)
    return model, TensorDataset(images[500:], labels[500:])


@pytest.mark.slow
@pytest.mark.parametrize("strength", [1.0, 3.0])
def test_sixteen_permutations_are_within_0_004_of_256(strength):
    model, data = learned(strength)
    reference = position_shap(model, data, permutations=256, seed=100)
    estimates = [position_shap(model, data, permutations=16, seed=seed).mean for seed in range(4)]
    assert reference.correct.double().mean() > 0.9
    assert 0.05 < reference.mean < 0.5
    assert np.square(np.array(estimates) - reference.mean).mean() ** 0.5 < 0.004


def test_a_sweep_takes_one_pass_and_k_of_each_sample():
    model = Tokens()
    result = position_shap(model, samples(21), permutations=16, batch_size=8)
    assert model.passes == 21 * 17
    assert result.passes_per_sample == 17


def test_no_two_samples_share_permutations():
    model = Tokens()
    position_shap(model, samples(10), permutations=2, batch_size=10)
    draws = torch.cat([draw for _, draw in model.calls if draw is not None])
    assert len(draws.unique(dim=0)) == 20
    assert torch.equal(draws.sort(dim=1).values, torch.arange(16).expand(20, 16))


@pytest.mark.parametrize("measure", [position_shap, position_shap_half_batches])
def test_the_players_share_what_the_background_lacks(measure):
    """position, Sec. 3, Eq. 4."""
    data = samples(24)
    options = {"permutations": 16} if measure is position_shap else {}
    result = measure(Tokens(), data, **options)
    f, (images, labels) = Tokens(), data.tensors
    both = f(images).detach().gather(1, labels[:, None])[:, 0]
    if measure is position_shap:
        draws = [draw_permutations(16, 16, "P-SHAP sweep", 0, i) for i in range(24)]
        logits = f(images.repeat_interleave(16, 0), torch.cat(draws)).detach()
        of_each = logits.view(24, 16, -1).mean(dim=1)[:, labels].T  # (explained, background)
        none = (of_each.sum(dim=1) - of_each.diagonal()) / 23
        lacking = both - none
    else:
        lacking = torch.empty(24, dtype=torch.float64)
        for fold in draw_folds(24, 16):
            none = f(images[fold.background], fold.permutations).detach().mean(dim=0)
            lacking[fold.samples] = (both - none[labels])[fold.samples]
    torch.testing.assert_close(result.phi_position + result.phi_image, lacking)
    assert ((result.values >= 0) & (result.values <= 1)).all()


@pytest.mark.parametrize("permutations", [1, 6, 16])
def test_a_model_that_ignores_positions_scores_zero(permutations):
    """position, Eq. 5."""
    result = position_shap(Tokens(strength=0), samples(40), permutations=permutations, batch_size=9)
    assert result.values.tolist() == [0] * 40
    assert (result.mean, result.interval) == (0, (0, 0))
    assert (
        position_shap_half_batches(Tokens(strength=0), samples(9), batch_size=4).values.max()
        < 1e-12
    )


@pytest.mark.parametrize("measure", [position_shap, position_shap_half_batches])
def test_a_model_that_ignores_everything_scores_zero(measure):
    class Constant(nn.Module):
        positions = 16

        def forward(self, images, permutation=None):
            return torch.tensor([[0.1, 0.7]]).expand(len(images), 2)

    images = torch.zeros(5, 3, 8, 8)
    result = measure(Constant().eval(), TensorDataset(images, torch.ones(5, dtype=torch.long)))
    assert result.values.tolist() == [0] * 5


def test_batch_size_and_workers_change_nothing():
    data = samples(30)
    reference = position_shap(Tokens(), data, permutations=4, batch_size=30)
    for batch_size in (1, 7, 64):
        other = position_shap(Tokens(), data, permutations=4, batch_size=batch_size)
        assert_same(other, reference, tolerance=1e-12)
        assert other.interval == pytest.approx(reference.interval, abs=1e-12)
    assert_same(position_shap(Tokens(), data, permutations=4, batch_size=30, workers=1), reference)


def test_a_sweep_stops_when_its_interval_is_narrow_enough():
    model, data = learned(2.0)
    whole = position_shap(model, data)
    assert whole.samples.tolist() == [*range(500)]
    wide = 1.5 * whole.half_width
    asked = {"batch_size": 20, "seed": 3}
    stopped = position_shap(model, data, max_half_width=wide, **asked)
    taken = len(stopped.samples)
    assert 100 <= taken < 450
    assert stopped.half_width <= wide
    assert torch.equal(stopped.samples, draw_order(500, 3)[:taken].sort().values)
    assert len(stopped.values) == len(stopped.correct) == taken
    # It is the sweep of these samples: their permutations depend on their indices alone.
    other = position_shap(model, data, max_half_width=1e-9, **asked)
    assert other.samples.tolist() == [*range(500)]
    assert other.half_width > 1e-9
    assert_same(other, position_shap(model, data, **asked), tolerance=1e-12)


@pytest.mark.slow
def test_stopping_early_covers_as_often_as_the_interval_says():
    model, data = learned(2.0)
    truth = position_shap(model, data).mean
    width = 1.5 * position_shap(model, data).half_width
    stopped = [
        position_shap(model, data, max_half_width=width, batch_size=50, seed=seed)
        for seed in range(40)
    ]
    assert {len(result.samples) < 500 for result in stopped} == {True}
    covered = [low <= truth <= high for low, high in (result.interval for result in stopped)]
    assert np.mean(covered) >= 0.9  # the samples are drawn from 500 and not from all there are


def test_the_default_takes_fewer_permutations_of_many_samples():
    assert [default_permutations(count) for count in (2, 5000, 5001)] == [4, 4, 2]
    assert position_shap(Tokens(), samples(9)).passes_per_sample == 5


@pytest.mark.parametrize("label", [4, UNKNOWN - 1])
def test_a_label_beyond_the_classes_is_refused_with_its_batch(label):
    images, labels = samples(12).tensors
    labels[6] = label
    model = Tokens()
    with pytest.raises(VitrailError, match=f"label is {label}, but the model has 4 classes"):
        position_shap(model, TensorDataset(images, labels), permutations=2, batch_size=4)
    assert model.passes == 2 * 4 * (1 + 2)


def test_nothing_is_shown_where_there_is_no_terminal(capfd):
    position_shap(Tokens(), samples(4), permutations=1)
    position_shap_half_batches(Tokens(), samples(4))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_caller_without_gradients_gets_the_same_interval(mode):
    with mode():
        result = position_shap(Tokens(), samples(9))
    assert result.half_width == position_shap(Tokens(), samples(9)).half_width


def test_the_interval_holds_the_mean():
    result = position_shap(Tokens(), samples(60), permutations=2)
    low, high = result.interval
    assert low < result.mean < high


def test_an_unknown_label_stands_for_the_prediction():
    images, _ = samples(12).tensors
    predicted = Tokens()(images).argmax(dim=1)
    unknown = TensorDataset(images, torch.full((12,), UNKNOWN))
    for measure in (position_shap, position_shap_half_batches):
        result = measure(Tokens(), unknown)
        assert result.correct.all()
        assert_same(result, measure(Tokens(), TensorDataset(images, predicted)))


def test_without_correct_samples_there_is_no_mean():
    images, _ = samples(12).tensors
    wrong = TensorDataset(images, (Tokens()(images).argmax(dim=1) + 1) % 4)
    result = position_shap(Tokens(), wrong)
    assert math.isnan(result.mean)
    assert all(map(math.isnan, result.interval))


def test_what_cannot_be_measured_is_refused():
    data = samples(6)
    with pytest.raises(VitrailError, match="P-SHAP of 1 image has no background"):
        position_shap(Tokens(), samples(1))
    for odd in (0, 3, -2):
        with pytest.raises(VitrailError, match=f"permutations is {odd}; give 1 or an even number"):
            position_shap(Tokens(), data, permutations=odd)
    with pytest.raises(VitrailError, match="half width to stop at is 0"):
        position_shap(Tokens(), data, max_half_width=0)
    with pytest.raises(VitrailError, match="training mode"):
        position_shap_half_batches(Tokens().train(), data)
    with pytest.raises(VitrailError, match="label is 9, but the model has 4 classes"):
        position_shap(Tokens(), TensorDataset(data.tensors[0], torch.full((6,), 9)))
    with pytest.raises(VitrailError, match="logits are not finite"):
        position_shap(Tokens(strength=torch.nan), data)


@pytest.mark.parametrize("measure", [position_shap, position_shap_half_batches])
@pytest.mark.parametrize("class_token", [False, True])
def test_the_papers_vit_scores_zero_without_position_embeddings_only(measure, class_token):
    images = torch.randn(9, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(images, torch.full((9,), UNKNOWN))
    size = {"img_size": 16, "embed_dim": 24, "depth": 2, "num_heads": 2}

    def score(embedding):
        torch.manual_seed(0)
        model = timm.create_model(
            "position_vit", embedding=embedding, class_token=class_token, **size
        )
        return measure(permutable(model.eval()), data, batch_size=4).mean

    assert score("none") == 0
    assert score("sin") > 0.01
    assert score("rope") > 0.01


def test_a_model_of_timms_is_measured_as_it_is():
    torch.manual_seed(0)
    options = {"img_size": 8, "patch_size": 2, "embed_dim": 16, "depth": 1, "num_heads": 2}
    model = timm.create_model("vit_tiny_patch16_224", num_classes=4, **options).eval().double()
    data = samples(12)
    assert_same(position_shap(model, data), position_shap(permutable(model), data))
    halves = position_shap_half_batches(model, data)
    assert_same(halves, position_shap_half_batches(permutable(model), data))
    with pytest.raises(VitrailError, match="cannot be permuted"):
        position_shap(nn.Identity().eval(), data)
