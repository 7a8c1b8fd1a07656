import itertools
import math

import numpy as np
import pytest
import timm
import torch
from shap import KernelExplainer
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torch.utils.data import TensorDataset

import vitrail.models  # noqa: F401
from vitrail.errors import VitrailError
from vitrail.measures import position_shap as module
from vitrail.measures.accuracy import accuracy
from vitrail.measures.permutable import permutable
from vitrail.measures.position_shap import (
    UNKNOWN,
    Fold,
    bias_of_few,
    bootstrap_interval,
    draw_folds,
    draw_permutations,
    extrapolation,
    greater,
    paired,
    position_shap,
    position_share,
    shapley,
    sweep,
)
from vitrail.seeding import derive


class Tokens(nn.Module):
    """Mean of a nonlinear function of 16 patches plus their positions; records what it is asked."""

    positions = 16

    def __init__(self, strength=1.0, classes=4):
        super().__init__()
        generator = torch.Generator().manual_seed(0)

        def weights(*shape):
            return nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64))

        self.embedding, self.table = weights(12, 16), weights(16, 16)
        self.hidden, self.head = weights(16, 32), weights(32, classes)
        self.strength = strength
        self.calls = []
        self.eval()

    def forward(self, images, permutation=None):
        self.calls.append((images, permutation))
        patches = images.unfold(2, 2, 2).unfold(3, 2, 2)  # (B, 3, 4, 4, 2, 2)
        tokens = patches.permute(0, 2, 3, 1, 4, 5).flatten(1, 2).flatten(2) @ self.embedding
        places = self.table if permutation is None else self.table[permutation]
        mixed = torch.tanh((tokens + self.strength * places) @ self.hidden / 4)
        return mixed.mean(dim=1) @ self.head

    @property
    def passes(self):
        return sum(len(images) for images, _ in self.calls)


def samples(count, seed=1, wrong=5):
    """Noise images; labels are what `Tokens` predicts, but for one in every `wrong`."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 3, 8, 8, generator=generator, dtype=torch.float64)
    labels = Tokens()(images).argmax(dim=1)
    labels[::wrong] = (labels[::wrong] + 1) % 4
    return TensorDataset(images, labels)


def assert_same(left, right, tolerance=0.0):
    for name in ("values", "debiased", "phi_position", "phi_image", "correct"):
        torch.testing.assert_close(
            getattr(left, name), getattr(right, name), rtol=0, atol=tolerance
        )
    assert left.mean == pytest.approx(right.mean, rel=0, abs=tolerance)


def least_squares(f, instance, background):
    """Kernel SHAP (Lundberg and Lee, Theorem 2) of two players, as its regression.

    `f` takes (image index, embedding index) pairs. Coalitions of one player have equal weights;
    the empty and the full one bind phi_0 and the sum.
    """
    values = {
        coalition: np.mean(
            f(np.array([np.where(coalition, instance, other) for other in background]))
        )
        for coalition in itertools.product((False, True), repeat=2)
    }
    none, both = values[False, False], values[True, True]
    # The sum eliminates phi_embedding: y = phi_image * (z_image - z_embedding).
    design, target, weights = [], [], []
    for image, embedding in ((True, False), (False, True)):
        design.append(int(image) - int(embedding))
        target.append(values[image, embedding] - none - embedding * (both - none))
        weights.append((2 - 1) / (math.comb(2, 1) * 1 * (2 - 1)))
    design, target, root = np.array(design)[:, None], np.array(target), np.sqrt(weights)
    (phi_image,) = np.linalg.lstsq(design * root[:, None], target * root, rcond=None)[0]
    return np.array([phi_image, both - none - phi_image])


def kernel_explainer(f, instance, background):
    """The same by the shap package."""
    explainer = KernelExplainer(f, np.array(background))
    return explainer.shap_values(np.array(instance), silent=True, l1_reg=False)


@pytest.mark.parametrize("kernel_shap", [least_squares, kernel_explainer])
@pytest.mark.parametrize(("count", "batch_size"), [(12, 6), (7, 3)])
def test_paired_is_kernel_shap_on_the_same_background(kernel_shap, count, batch_size):
    """position, App. A, Eq. 3, Eq. 7-8."""
    model, data = Tokens(), samples(count)
    images, labels = data.tensors
    folds = draw_folds(count, 16, batch_size, seed=3)
    result = paired(model, data, folds=folds)
    for fold in folds:
        embeddings = torch.cat([fold.permutations, torch.arange(16)[None]])  # last: as it is
        background = [(int(other), row) for row, other in enumerate(fold.background)]
        for sample in fold.samples.tolist():

            def f(pairs, label=labels[sample], embeddings=embeddings):
                pairs = torch.as_tensor(pairs).long()
                logits = model(images[pairs[:, 0]], embeddings[pairs[:, 1]])
                return logits[:, label].detach().numpy()

            phi_image, phi_position = kernel_shap(f, (sample, len(background)), background)
            assert result.phi_image[sample].item() == pytest.approx(phi_image, abs=1e-10)
            assert result.phi_position[sample].item() == pytest.approx(phi_position, abs=1e-10)
            share = abs(phi_position) / (abs(phi_position) + abs(phi_image))
            assert result.values[sample].item() == pytest.approx(share, abs=1e-10)


def test_given_folds_and_permutations_are_replayed():
    generator = torch.Generator().manual_seed(5)
    draws = [torch.stack([torch.randperm(16, generator=generator) for _ in range(2)])] * 2
    folds = [
        Fold(torch.tensor([3, 0]), torch.tensor([1, 2]), draws[0]),
        Fold(torch.tensor([2, 1]), torch.tensor([0, 0]), draws[1]),
    ]
    model, data = Tokens(), samples(4)
    images, _ = data.tensors
    first = paired(model, data, folds=folds)
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
    assert_same(paired(Tokens(), data, folds=folds), first)
    assert_same(paired(Tokens(), data, folds=folds[::-1]), first)


def test_paired_draws_its_folds_from_the_seed():
    data = samples(20)
    drawn = paired(Tokens(), data, batch_size=8, seed=4)
    assert_same(paired(Tokens(), data, folds=draw_folds(20, 16, 8, seed=4)), drawn)
    assert not torch.equal(paired(Tokens(), data, batch_size=8, seed=5).values, drawn.values)


@pytest.mark.parametrize("last", range(8))
def test_the_last_batch_may_have_any_size(last):
    count = 16 + last
    folds = draw_folds(count, 16, batch_size=8)
    assert torch.equal(torch.cat([f.samples for f in folds]).sort().values, torch.arange(count))
    for fold in folds:
        assert len(fold.background) == len(fold.background.unique()) == len(fold.permutations) == 4
        assert not set(fold.samples.tolist()) & set(fold.background.tolist())
    in_last = torch.cat([fold.background for fold in folds[4:]]) if last else torch.tensor([8])
    assert in_last.min() >= 8  # borrowed from the batch before, not from an earlier one
    assert paired(Tokens(), samples(count), batch_size=8).values.isfinite().all()


def test_fewer_samples_than_a_batch_are_halved_too():
    folds = draw_folds(3, 16, batch_size=32)
    assert [len(fold.samples) for fold in folds] == [2, 1]
    assert [len(fold.background) for fold in folds] == [1, 2]


def test_folds_must_explain_every_sample_once():
    folds = draw_folds(8, 16, 4)
    with pytest.raises(VitrailError, match="do not explain each of the 9 samples once"):
        paired(Tokens(), samples(9), folds=folds)
    with pytest.raises(VitrailError, match="batch_size is 1"):
        paired(Tokens(), samples(9), batch_size=1)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_sweep_is_its_definition(k):
    data = samples(9)
    images, labels = data.tensors
    result = sweep(Tokens(), data, permutations=k, batch_size=4, seed=2)
    draws = [draw_permutations(k, 16, "P-SHAP sweep", 2, index) for index in range(9)]
    f = Tokens()
    clean = f(images).detach()
    permuted = torch.stack([f(images[[i] * k], draws[i]).detach() for i in range(9)])  # (9, K, C)
    first = -(-k // 2)  # of two halves, the first one is the larger
    shares = {}
    for part in (slice(None), slice(first), slice(first, None))[: 3 if k > 1 else 1]:
        for i, c in enumerate(labels.tolist()):
            both, image = clean[i, c], permuted[i, part, c].mean()
            position, none = clean[:, c].mean(), permuted[:, part, c].mean()
            phi_position = 0.5 * (position - none) + 0.5 * (both - image)
            phi_image = 0.5 * (image - none) + 0.5 * (both - position)
            share = abs(phi_position) / (abs(phi_position) + abs(phi_image))
            shares.setdefault(i, []).append(share)
            if part == slice(None):
                assert result.phi_position[i].item() == pytest.approx(
                    phi_position.item(), abs=1e-12
                )
                assert result.phi_image[i].item() == pytest.approx(phi_image.item(), abs=1e-12)
                assert result.values[i].item() == pytest.approx(share.item(), abs=1e-12)
    weights = {1: [1], 2: [2, -0.5, -0.5], 3: [1.8, -0.4, -0.4], 4: [2, -0.5, -0.5]}[k]
    for i, parts in shares.items():
        expected = sum(w * part.item() for w, part in zip(weights, parts, strict=True))
        assert result.debiased[i].item() == pytest.approx(expected, abs=1e-12)
    assert result.correct.tolist() == (clean.argmax(dim=1) == labels).tolist()
    assert result.mean == pytest.approx(result.debiased[result.correct].mean().item())


@pytest.mark.parametrize("k", range(2, 10))
def test_what_falls_as_one_over_k_is_taken_out_exactly(k):
    first = -(-k // 2)
    plain = torch.tensor([0.3 + 0.7 / n for n in (k, first, k - first)], dtype=torch.float64)
    assert (extrapolation(k) @ plain).item() == pytest.approx(0.3, abs=1e-12)


class Corners(nn.Module):
    """Logits of two classes from four pixels, each times what its corner weighs, bent."""

    positions = 4
    weights = torch.tensor([[1.8, 0.6, 1.2, 1.0], [-1.4, -0.9, -0.6, -0.7]], dtype=torch.float64)

    def forward(self, images, permutation=None):
        pixels = images[:, 0].flatten(1)  # (B, 4)
        order = torch.arange(4).expand(len(images), 4) if permutation is None else permutation
        return torch.tanh((pixels[:, None] * self.weights[:, order].transpose(0, 1)).sum(dim=2))


@pytest.fixture(scope="module")
def corners():
    """`Corners`, samples of it, and their mean P-SHAP over all 24 orders of four corners."""
    generator = torch.Generator().manual_seed(0)
    images = 0.3 * torch.randn(400, 1, 2, 2, generator=generator, dtype=torch.float64)
    images += torch.tensor([0.6, -0.6]).repeat(200)[:, None, None, None]
    model, orders = Corners().eval(), torch.tensor(list(itertools.permutations(range(4))))
    clean = model(images)
    labels = clean.argmax(dim=1)
    of_orders = torch.stack([model(images, order.expand(400, 4)) for order in orders]).mean(dim=0)
    return model, TensorDataset(images, labels), mean_share(clean, of_orders, labels)


def test_the_bias_of_few_permutations_is_gone_against_the_shapley_values_of_all(
    corners, monkeypatch
):
    monkeypatch.setattr(module, "RESAMPLES", 50)
    model, data, exact = corners
    swept = [sweep(model, data, permutations=2, seed=seed) for seed in range(20)]
    plain = np.mean([one.values[one.correct].mean().item() for one in swept]) - exact
    mended = np.mean([one.mean for one in swept]) - exact
    assert plain > 5e-4
    assert abs(mended) < plain / 2


def test_groups_of_many_permutations_tell_the_bias_of_few(corners):
    model, data, exact = corners
    truth, biases = bias_of_few(model, data, [1, 2, 4], reference=240, batch_size=70)
    assert truth == pytest.approx(exact, abs=5e-5)
    for k, (plain, mended) in biases.items():
        assert plain == pytest.approx(biases[1][0] / k, rel=0.3)
        assert mended == plain if k == 1 else abs(mended) < plain / 2
    with pytest.raises(VitrailError, match=r"permutations are \[9\]; give 1 to reference = 8"):
        bias_of_few(model, data, [9], reference=8)


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


@pytest.mark.parametrize("strength", [1.0, 3.0])
def test_sixteen_permutations_are_within_0_004_of_256(strength):
    model, data = learned(strength)
    reference = sweep(model, data, permutations=256, seed=100)
    estimates = [sweep(model, data, seed=seed).mean for seed in range(4)]
    assert reference.correct.double().mean() > 0.9
    assert 0.05 < reference.mean < 0.5
    assert np.square(np.array(estimates) - reference.mean).mean() ** 0.5 < 0.004


def test_a_sweep_takes_one_pass_and_k_of_each_sample():
    model = Tokens()
    result = sweep(model, samples(21), permutations=16, batch_size=8)
    assert model.passes == 21 * 17
    assert result.passes_per_sample == 17


def test_paired_counts_its_passes():
    model = Tokens()
    result = paired(model, samples(21), batch_size=8)
    assert model.passes == pytest.approx(21 * result.passes_per_sample)


def test_no_two_samples_share_permutations():
    model = Tokens()
    sweep(model, samples(10), permutations=2, batch_size=10)
    draws = torch.cat([draw for _, draw in model.calls if draw is not None])
    assert len(draws.unique(dim=0)) == 20
    assert torch.equal(draws.sort(dim=1).values, torch.arange(16).expand(20, 16))


@pytest.mark.parametrize("measure", [sweep, paired])
def test_the_players_share_what_the_background_lacks(measure):
    """position, Sec. 3, Eq. 4."""
    data = samples(24)
    result = measure(Tokens(), data)
    f, (images, labels) = Tokens(), data.tensors
    both = f(images).detach().gather(1, labels[:, None])[:, 0]
    if measure is sweep:
        draws = [draw_permutations(16, 16, "P-SHAP sweep", 0, i) for i in range(24)]
        none = f(images.repeat_interleave(16, 0), torch.cat(draws)).detach().mean(dim=0)
        lacking = both - none[labels]
    else:
        lacking = torch.empty(24, dtype=torch.float64)
        for fold in draw_folds(24, 16):
            none = f(images[fold.background], fold.permutations).detach().mean(dim=0)
            lacking[fold.samples] = (both - none[labels])[fold.samples]
    torch.testing.assert_close(result.phi_position + result.phi_image, lacking)
    assert ((result.values >= 0) & (result.values <= 1)).all()


def test_shapley_values_are_means_over_both_orders_of_arrival():
    """position, Sec. 3, Eq. 4-5."""
    both, image, position, none = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    phi_position, phi_image = shapley(both, image, position, none)
    torch.testing.assert_close(phi_position + phi_image, both - none)
    torch.testing.assert_close(phi_position, ((position - none) + (both - image)) / 2)
    share = position_share(torch.tensor([0.0, -1, 2, 0]), torch.tensor([0.0, 3, -2, 1]))
    assert share.tolist() == [0, 0.25, 0.5, 0]


@pytest.mark.parametrize("permutations", [1, 7, 16])
def test_a_model_that_ignores_positions_scores_zero(permutations):
    """position, Eq. 5."""
    result = sweep(Tokens(strength=0), samples(40), permutations=permutations, batch_size=9)
    assert result.values.tolist() == [0] * 40
    assert (result.mean, result.interval) == (0, (0, 0))
    assert paired(Tokens(strength=0), samples(9), batch_size=4).values.max() < 1e-12


@pytest.mark.parametrize("measure", [sweep, paired])
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
    reference = sweep(Tokens(), data, permutations=4, batch_size=30)
    for batch_size in (1, 7, 64):
        other = sweep(Tokens(), data, permutations=4, batch_size=batch_size)
        assert_same(other, reference, tolerance=1e-12)
        assert other.interval == pytest.approx(reference.interval, abs=1e-12)
    assert_same(sweep(Tokens(), data, permutations=4, batch_size=30, workers=1), reference)


class Dying(Tokens):
    """Dies in a given call."""

    def __init__(self, last):
        super().__init__()
        self.last = last

    def forward(self, images, permutation=None):
        if len(self.calls) == self.last:
            raise KeyboardInterrupt
        return super().forward(images, permutation)


def killed(data, file, last=12, **options):
    """Leave what a sweep of K = 4 has done when it dies in a call."""
    with pytest.raises(KeyboardInterrupt):
        sweep(Dying(last), data, permutations=4, batch_size=8, resume=file, **options)


def test_a_sweep_goes_on_where_it_was_killed(tmp_path):
    data, file = samples(40), tmp_path / "sweep"
    whole = sweep(Tokens(), data, permutations=4, batch_size=8)
    killed(data, file)  # two batches of five passes are whole
    begun = file.read_bytes()
    killed(data, file, last=8)  # then one more
    assert file.read_bytes().startswith(begun)  # appended to, not written anew
    with file.open("ab") as half:
        half.write(b"half a row")
    model = Tokens()
    resumed = sweep(model, data, permutations=4, batch_size=8, resume=file)
    assert_same(resumed, whole)
    assert resumed.interval == whole.interval
    assert model.passes == 2 + (40 - 24) * 5  # two to know the model and the images again
    assert not file.exists()


def test_progress_of_another_sweep_is_refused(tmp_path):
    data, file = samples(40), tmp_path / "sweep"
    killed(data, file, digest="a")
    kept = file.read_bytes()

    def resume(model, data, permutations=4, digest="a"):
        sweep(model, data, permutations=permutations, resume=file, digest=digest)

    with pytest.raises(
        VitrailError, match=r"with \{'permutations': 4\}, not \{'permutations': 5\}"
    ):
        resume(Tokens(), data, 5)
    with pytest.raises(VitrailError, match=r"with \{'images and labels': 'a'\}, not .*: 'b'\}"):
        resume(Tokens(), data, digest="b")
    with pytest.raises(VitrailError, match="another model or other images: delete it"):
        resume(Tokens(strength=2), data)
    images, labels = data.tensors
    others = samples(40, seed=2), TensorDataset(torch.cat([images[:1], -images[1:]]), labels)
    for other in others:
        with pytest.raises(VitrailError, match="another model or other images: delete it"):
            resume(Tokens(), other)
    assert file.read_bytes() == kept
    twice = kept + kept[kept.index(b"\n") + 1 :]  # as two processes at once would leave it
    for damaged in (b"nonsense", b"{}\n", b"[1]\n", twice):
        file.write_bytes(damaged)
        with pytest.raises(VitrailError, match="is damaged or no sweep's: delete it"):
            resume(Tokens(), data)
        assert file.read_bytes() == damaged


def test_a_file_that_cannot_be_written_is_told_before_it_is_needed(tmp_path):
    model = Tokens()
    for file in (tmp_path, tmp_path / "none" / "sweep"):
        with pytest.raises(VitrailError, match=f"cannot write {file} "):
            sweep(model, samples(9), resume=file)
    assert model.passes == 0


@pytest.mark.parametrize("label", [4, UNKNOWN - 1])
def test_a_label_beyond_the_classes_is_refused_before_it_costs_passes(label):
    images, labels = samples(12).tensors
    labels[6] = label
    model = Tokens()
    with pytest.raises(VitrailError, match=f"label is {label}, but the model has 4 classes"):
        sweep(model, TensorDataset(images, labels), permutations=2, batch_size=4)
    assert model.passes == 4 * (1 + 2) + 4


def test_nothing_is_shown_where_there_is_no_terminal(capfd):
    sweep(Tokens(), samples(4), permutations=1)
    paired(Tokens(), samples(4))
    assert capfd.readouterr() == ("", "")


ONE = torch.ones(1, dtype=torch.float64)


def population(count, generator):
    """Logits of samples as they are and averaged over permutations, and their classes."""
    classes = torch.randint(3, (count,), generator=generator)
    noise = torch.randn(2, count, 3, generator=generator, dtype=torch.float64)
    clean = noise[0] + 2 * nn.functional.one_hot(classes, 3)
    permuted = 0.5 * clean + 0.5 * noise[1] + torch.tensor([0.2, 0.0, -0.2])
    return clean, permuted, classes


def interval(clean, permuted, classes, seed):
    return bootstrap_interval(clean, [permuted], classes, seed, ONE)


def mean_share(clean, permuted, classes):
    rows = torch.arange(len(classes))
    phi = shapley(
        clean[rows, classes],
        permuted[rows, classes],
        clean.mean(dim=0)[classes],
        permuted.mean(dim=0)[classes],
    )
    return position_share(*phi)[clean.argmax(dim=1) == classes].mean().item()


def test_the_bootstrap_interval_covers_as_often_as_it_says():
    generator = torch.Generator().manual_seed(0)
    truth = mean_share(*population(400_000, generator))
    intervals = [interval(*population(100, generator), seed=t) for t in range(200)]
    covered = sum(low <= truth <= high for low, high in intervals)
    assert 180 <= covered <= 198  # 190 expected, with a standard deviation of 3
    narrow = interval(*population(1600, generator), seed=0)
    width = sum(high - low for low, high in intervals) / 200
    assert (narrow[1] - narrow[0]) / width == pytest.approx(0.25, rel=0.2)


def test_a_draw_of_samples_draws_their_share_in_the_background(monkeypatch):
    clean, permuted, classes = population(30, torch.Generator().manual_seed(1))
    monkeypatch.setattr(module, "RESAMPLES", 1)
    monkeypatch.setattr(module, "DRAWN_TOGETHER", 1)
    seeded = torch.Generator().manual_seed(derive("P-SHAP bootstrap", 7))
    drawn = torch.randint(30, (1, 30), generator=seeded)[0]
    expected = mean_share(clean[drawn], permuted[drawn], classes[drawn])
    assert interval(clean, permuted, classes, seed=7) == pytest.approx((expected,) * 2)


def test_the_interval_holds_the_mean():
    result = sweep(Tokens(), samples(60), permutations=2)
    low, high = result.interval
    assert low < result.mean < high


def test_an_unknown_label_stands_for_the_prediction():
    images, _ = samples(12).tensors
    predicted = Tokens()(images).argmax(dim=1)
    unknown = TensorDataset(images, torch.full((12,), UNKNOWN))
    for measure in (sweep, paired):
        result = measure(Tokens(), unknown)
        assert result.correct.all()
        assert_same(result, measure(Tokens(), TensorDataset(images, predicted)))


def test_without_correct_samples_there_is_no_mean():
    images, _ = samples(12).tensors
    wrong = TensorDataset(images, (Tokens()(images).argmax(dim=1) + 1) % 4)
    result = sweep(Tokens(), wrong)
    assert math.isnan(result.mean)
    assert all(map(math.isnan, result.interval))


def test_what_cannot_be_measured_is_refused():
    data = samples(6)
    with pytest.raises(VitrailError, match="P-SHAP of 1 images has no background"):
        sweep(Tokens(), samples(1))
    with pytest.raises(VitrailError, match="permutations is 0; give at least 1"):
        sweep(Tokens(), data, permutations=0)
    with pytest.raises(VitrailError, match="training mode"):
        paired(Tokens().train(), data)
    with pytest.raises(VitrailError, match="label is 9, but the model has 4 classes"):
        sweep(Tokens(), TensorDataset(data.tensors[0], torch.full((6,), 9)))
    with pytest.raises(VitrailError, match="logits are not finite"):
        sweep(Tokens(strength=torch.nan), data)


def test_mann_whitney_is_the_share_of_orders_that_are_as_extreme():
    first, second = torch.tensor([0.9, 0.4, 0.8, 0.3]), torch.tensor([0.1, 0.5, 0.2])
    together = torch.cat([first, second])

    def wins(chosen):
        rest = [i for i in range(7) if i not in chosen]
        return sum(bool(together[i] > together[j]) for i in chosen for j in rest)

    orders = list(itertools.combinations(range(7), 4))
    extreme = sum(wins(chosen) >= wins((0, 1, 2, 3)) for chosen in orders)
    assert greater(first, second) == pytest.approx(extreme / len(orders))
    assert greater(second, first) > 0.5


def test_a_p_value_below_what_float32_holds_is_not_zero():
    dependent, independent = torch.linspace(0.5, 1, 300), torch.linspace(0, 0.4, 300)
    assert 0 < greater(dependent, independent) < 1e-90
    with pytest.raises(VitrailError, match="300 against 0 samples"):
        greater(dependent, independent[:0])


@pytest.mark.parametrize("measure", [sweep, paired])
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


def test_a_run_is_measured_on_its_validation_split(trained_on_digits):
    torch.manual_seed(0)
    vit = VisionTransformer(8, 2, embed_dim=8, depth=1, num_heads=2, num_classes=10).eval()
    nn.init.normal_(vit.pos_embed)
    run = trained_on_digits(vit)
    values = position_shap(run, permutations=2)
    assert values["images"] == 599
    assert values["passes_per_sample"] == 3
    assert values["top1"] == pytest.approx(accuracy(run)["top1"])
    assert 0 < values["ci_low"] < values["p_shap"] < values["ci_high"] < 1
    few = position_shap(run, permutations=2, batch_size=7, images=50)
    assert few["images"] == 50
    nn.init.zeros_(vit.pos_embed)
    assert position_shap(run, permutations=2, images=50)["p_shap"] == 0
