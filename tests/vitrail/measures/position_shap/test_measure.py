"""P-SHAP in one call: of data sets, loaders and images, by either estimator."""

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, SubsetRandomSampler, TensorDataset

from tests.vitrail.measures.position_shap.models import Tokens, assert_same, samples
from vitrail.errors import VitrailError
from vitrail.measures.outputs import UNKNOWN
from vitrail.measures.position_shap.half_batches import position_shap_half_batches
from vitrail.measures.position_shap.measure import position_shap
from vitrail.measures.position_shap.sweep import position_shap_sweep


@pytest.mark.parametrize("estimator", ["sweep", "half-batches"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_loader_is_measured_as_its_data_set(estimator, shuffle):
    data = samples(18)
    expected = position_shap(Tokens(), data, estimator=estimator)
    loader = DataLoader(data, batch_size=5, shuffle=shuffle)
    assert_same(position_shap(Tokens(), loader, estimator=estimator), expected, tolerance=1e-12)


def test_a_loader_says_how_many_images_are_taken_at_a_time():
    model = Tokens()
    position_shap(model, DataLoader(samples(18), batch_size=5), permutations=1)
    assert {len(images) for images, _ in model.calls} == {5, 3}
    model = Tokens()
    position_shap(model, DataLoader(samples(18), batch_size=5), permutations=1, batch_size=9)
    assert {len(images) for images, _ in model.calls} == {9}


def test_the_images_of_a_sampler_and_what_a_loader_makes_of_them_are_measured():
    data = samples(18)
    images, labels = data.tensors
    chosen = [3, 16, 5, 11]

    def brighter(batch):
        pixels, classes = zip(*batch, strict=True)
        return torch.stack(pixels) + 0.5, torch.stack(classes)

    loader = DataLoader(data, 2, sampler=SubsetRandomSampler(chosen), collate_fn=brighter)
    own = TensorDataset(images[sorted(chosen)] + 0.5, labels[sorted(chosen)])
    assert_same(position_shap(Tokens(), loader), position_shap(Tokens(), own), tolerance=1e-12)


def test_images_without_labels_are_explained_by_their_predictions():
    images, _ = samples(12).tensors
    unknown = TensorDataset(images, torch.full((12,), UNKNOWN))
    assert_same(position_shap(Tokens(), images), position_shap(Tokens(), unknown))


def test_each_estimator_is_the_one_of_its_name():
    data = samples(12)
    swept, halved = (position_shap(Tokens(), data, estimator=e) for e in ("sweep", "half-batches"))
    assert_same(swept, position_shap_sweep(Tokens(), data))
    assert_same(halved, position_shap_half_batches(Tokens(), data))
    assert swept.interval is not None
    assert halved.interval is None


class Endless(IterableDataset):
    def __iter__(self):
        return iter(samples(4))


@pytest.mark.parametrize(
    "data",
    [
        Endless(),
        DataLoader(Endless(), 2),
        DataLoader(samples(4), batch_size=None),
        iter(DataLoader(samples(4), 2)),
        samples(4).tensors[0].numpy(),
    ],
)
def test_data_of_which_no_single_image_can_be_read_is_refused(data):
    with pytest.raises(VitrailError, match="single images of the data"):
        position_shap(Tokens(), data)


@pytest.mark.parametrize("option", [{"permutations": 4}, {"max_half_width": 0.1}])
def test_half_batches_refuse_an_option_of_the_sweep(option):
    (name,) = option
    with pytest.raises(VitrailError, match=f"'half-batches' does not take: leave {name} out"):
        position_shap(Tokens(), samples(4), estimator="half-batches", **option)


def test_an_estimator_that_there_is_not_is_refused():
    with pytest.raises(VitrailError, match="half-batches"):
        position_shap(Tokens(), samples(4), estimator="half-batch")
