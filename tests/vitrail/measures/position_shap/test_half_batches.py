import numpy as np
import pytest
import torch

from tests.vitrail.measures.position_shap.models import Tokens, assert_same, samples
from vitrail.errors import VitrailError
from vitrail.measures.position_shap.half_batches import Fold, draw_folds, position_shap_half_batches
from vitrail.measures.position_shap.kernel import kernel_shap


def least_squares(f, instance, background):
    """Kernel SHAP of two players by its regression; `f` takes (image, embedding) index pairs."""

    def response(coalitions):
        means = [
            np.mean(f([np.where(there, instance, other) for other in background]))
            for there in coalitions.numpy()
        ]
        return torch.tensor(means, dtype=torch.float64)

    return kernel_shap(response, 2).numpy()


def kernel_explainer(f, instance, background):
    """The same by the shap package."""
    from shap import KernelExplainer  # takes seconds

    explainer = KernelExplainer(f, np.array(background))
    return explainer.shap_values(np.array(instance), silent=True, l1_reg=False)


@pytest.mark.parametrize(
    "explain", [least_squares, pytest.param(kernel_explainer, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(("count", "batch_size"), [(12, 6), (7, 3)])
def test_paired_is_kernel_shap_on_the_same_background(explain, count, batch_size):
    """position, App. A, Eq. 3, Eq. 7-8."""
    model, data = Tokens(), samples(count)
    images, labels = data.tensors
    folds = draw_folds(count, 16, batch_size, seed=3)
    result = position_shap_half_batches(model, data, folds=folds)
    for fold in folds:
        embeddings = torch.cat([fold.permutations, torch.arange(16)[None]])  # last: as it is
        background = [(int(other), row) for row, other in enumerate(fold.background)]
        for sample in fold.samples.tolist():

            def f(pairs, label=labels[sample], embeddings=embeddings):
                pairs = torch.as_tensor(np.array(pairs)).long()
                logits = model(images[pairs[:, 0]], embeddings[pairs[:, 1]])
                return logits[:, label].detach().numpy()

            phi_image, phi_position = explain(f, (sample, len(background)), background)
            assert result.phi_image[sample].item() == pytest.approx(phi_image, abs=1e-10)
            assert result.phi_position[sample].item() == pytest.approx(phi_position, abs=1e-10)
            share = abs(phi_position) / (abs(phi_position) + abs(phi_image))
            assert result.values[sample].item() == pytest.approx(share, abs=1e-10)
            last = len(background)
            both, alone = f([(sample, last)]), f([(sample, row) for row in range(last)]).mean()
            position = f([(other, last) for other, _ in background]).mean()
            together = (both - alone - position + f(background).mean()).item()
            assert result.interaction[sample].item() == pytest.approx(together, abs=1e-10)


def test_given_folds_and_permutations_are_replayed():
    generator = torch.Generator().manual_seed(5)
    draws = [torch.stack([torch.randperm(16, generator=generator) for _ in range(2)])] * 2
    folds = [
        Fold(torch.tensor([3, 0]), torch.tensor([1, 2]), draws[0]),
        Fold(torch.tensor([2, 1]), torch.tensor([0, 0]), draws[1]),
    ]
    model, data = Tokens(), samples(4)
    images, _ = data.tensors
    first = position_shap_half_batches(model, data, folds=folds)
    asked = [
        (image, draw)
        for batch, permutation in model.calls
        if permutation is not None
        for image, draw in zip(batch, permutation, strict=True)
    ]
    expected = [
        (images[sample], draw)
        for fold in folds
        for row, draw in enumerate(fold.permutations)
        for sample in [*fold.samples, fold.background[row]]
    ]
    assert len(asked) == len(expected)
    for image, draw in expected:
        assert any(torch.equal(image, a) and torch.equal(draw, b) for a, b in asked)
    assert_same(position_shap_half_batches(Tokens(), data, folds=folds), first)
    assert_same(position_shap_half_batches(Tokens(), data, folds=folds[::-1]), first)


def test_paired_draws_its_folds_from_the_seed():
    data = samples(20)
    drawn = position_shap_half_batches(Tokens(), data, batch_size=8, seed=4)
    assert_same(
        position_shap_half_batches(Tokens(), data, folds=draw_folds(20, 16, 8, seed=4)), drawn
    )
    assert not torch.equal(
        position_shap_half_batches(Tokens(), data, batch_size=8, seed=5).values, drawn.values
    )


def test_backgrounds_do_not_follow_the_order_of_the_data():
    """A sample of all images is the background, also if images are sorted by class."""
    for fold in draw_folds(320, 16, batch_size=32):
        of_first_half = (fold.background < 160).double().mean().item()
        assert 0.0 < of_first_half < 1.0


@pytest.mark.parametrize("last", range(8))
def test_the_last_batch_may_have_any_size(last):
    count = 16 + last
    folds = draw_folds(count, 16, batch_size=8)
    assert torch.equal(torch.cat([f.samples for f in folds]).sort().values, torch.arange(count))
    for fold in folds:
        assert len(fold.background) == len(fold.background.unique()) == len(fold.permutations) == 4
        assert not set(fold.samples.tolist()) & set(fold.background.tolist())
    first = {i for fold in folds[:2] for i in fold.samples.tolist()}
    in_last = {i for fold in folds[4:] for i in fold.background.tolist()}
    assert not first & in_last  # borrowed from the batch before, not from an earlier one
    assert (
        position_shap_half_batches(Tokens(), samples(count), batch_size=8).values.isfinite().all()
    )


def test_fewer_samples_than_a_batch_are_halved_too():
    folds = draw_folds(3, 16, batch_size=32)
    assert [len(fold.samples) for fold in folds] == [2, 1]
    assert [len(fold.background) for fold in folds] == [1, 2]


def test_folds_must_explain_every_sample_once():
    folds = draw_folds(8, 16, 4)
    with pytest.raises(VitrailError, match="do not explain each of the 9 samples once"):
        position_shap_half_batches(Tokens(), samples(9), folds=folds)
    with pytest.raises(VitrailError, match="batch_size is 1"):
        position_shap_half_batches(Tokens(), samples(9), batch_size=1)


def test_paired_counts_its_passes():
    model = Tokens()
    result = position_shap_half_batches(model, samples(21), batch_size=8)
    assert model.passes == pytest.approx(21 * result.passes_per_sample)
