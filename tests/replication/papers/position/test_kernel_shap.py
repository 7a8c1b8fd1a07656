"""P-SHAP's definitions compared on one batch: by regression, of parts, and of mean backgrounds."""

import pytest
import torch

from replication.papers.position.kernel_shap import (
    blocks_of,
    kernel_shap_of_parts,
    responses,
    responses_to_means,
)
from replication.papers.position.measures import transformed, validation
from tests.trained_on_digits import trained_on_digits
from vitrail.errors import VitrailError
from vitrail.measures.loading import evenly_spread
from vitrail.measures.position_shap.half_batches import position_shap_half_batches
from vitrail.measures.position_shap.shapley import position_share, shapley

__all__ = ["trained_on_digits"]


@pytest.fixture
def run(scrambled, trained_on_digits):
    """A model in float64, of images of 8 pixels and a grid of 4 x 4 patches, on the digits."""

    def make(embedding="ape", **kwargs):
        kwargs = {"img_size": 8, "patch_size": 2, "num_classes": 10, **kwargs}
        model = scrambled(embedding, **kwargs)
        model.register_forward_pre_hook(lambda _, args: (args[0].double(), *args[1:]))
        return trained_on_digits(model)

    return make


def test_two_features_by_regression_are_the_closed_form_and_parts_and_means_are_not(run):
    """position, Sec. 3, App. A."""
    values = kernel_shap_of_parts(run(), images=40, parts=1)
    assert values["images"] == 40
    assert values["two/phi"] < 1e-10
    assert values["parts/phi"] < 1e-10  # one part of each
    assert values["mean/phi"] > 1e-3
    assert values["mean_parts/phi"] == pytest.approx(values["mean/phi"], abs=1e-10)
    assert values["two/p_shap"] == pytest.approx(values["closed/p_shap"], abs=1e-10)
    values = kernel_shap_of_parts(run(), images=6, parts=2)
    assert values["parts/phi"] > 1e-6
    assert abs(values["mean_parts/phi"] - values["mean/phi"]) > 1e-6


def test_the_closed_form_is_that_of_a_batch_of_the_papers_protocol(run):
    trained = run()
    samples = transformed(trained, validation(trained, 60))
    result = position_shap_half_batches(trained.model, samples, batch_size=60)
    values = kernel_shap_of_parts(trained, images=60, parts=1)
    assert values["closed/p_shap"] == pytest.approx(result.values[result.correct].mean().item())


def test_a_coalition_mixes_blocks_of_image_and_background(scrambled, images):
    model = scrambled("ape")
    image, others = images[0], images[1:]
    permutations = torch.stack([torch.randperm(16) for _ in others])
    blocks = blocks_of(model.grid_size, 2)
    coalition = torch.tensor([[1, 0, 0, 1, 0, 1, 0, 0]]).bool()
    response = responses(model, image, 3, others, permutations, blocks, batch_size=2)
    expected = []
    for other, permutation in zip(others, permutations, strict=True):
        mixed = other.clone()
        mixed[:, :8, :8], mixed[:, 8:, 8:] = image[:, :8, :8], image[:, 8:, 8:]
        rows = permutation.clone()
        own = torch.tensor([2, 3, 6, 7])  # the patches of the upper right block
        rows[own] = own
        expected.append(model(mixed[None], rows[None])[0, 3])
    assert response(coalition).item() == pytest.approx(sum(expected).item() / 2, abs=1e-10)


def test_means_stand_for_image_and_table(scrambled, images):
    """position, App. A."""
    model = scrambled("ape")
    response = responses_to_means(model, images[0], 2, images[1:], blocks_of(model.grid_size, 1))
    everything = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]).bool()
    found = response(everything)
    mean = images[1:].mean(0)
    assert found[1:4:2].tolist() == pytest.approx(
        [model(image[None])[0, 2].item() for image in (mean, images[0])], abs=1e-10
    )
    model.pos_embed.weight.data[:] = model.pos_embed.weight.mean(0)
    assert found[0:4:2].tolist() == pytest.approx(
        [model(image[None])[0, 2].item() for image in (mean, images[0])], abs=1e-10
    )


def test_means_stand_for_blocks_of_image_and_table(scrambled, images):
    """position, Sec. 3, App. A."""
    model = scrambled("ape")
    image, others = images[0], images[1:]
    response = responses_to_means(model, image, 3, others, blocks_of(model.grid_size, 2))
    coalitions = torch.tensor([[1, 0, 0, 1, 0, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1]]).bool()
    found = response(coalitions)
    mean = others.mean(0)
    assert found[1].item() == pytest.approx(model(mean[None])[0, 3].item(), abs=1e-10)
    mixed = mean.clone()
    mixed[:, :8, :8], mixed[:, 8:, 8:] = image[:, :8, :8], image[:, 8:, 8:]
    table = model.pos_embed.weight.data
    rows = table.mean(0).repeat(len(table), 1)
    own = torch.tensor([2, 3, 6, 7])  # the patches of the upper right block
    rows[own] = table[own]
    model.pos_embed.weight.data = rows
    assert found[0].item() == pytest.approx(model(mixed[None])[0, 3].item(), abs=1e-10)


def test_a_model_that_is_linear_has_one_p_shap_however_it_is_defined(scrambled, images):
    """The mean of logits is the logit of means, and there is nothing that parts do together."""
    model = scrambled("ape", depth=1)
    model.norm = torch.nn.Identity()
    for layer in (model.blocks[0].attn.proj, model.blocks[0].mlp.fc2):
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    image, others = images[0], images[1:]
    # All tokens have one row, so that a permutation changes as much as the mean does: nothing.
    permutations = torch.stack([torch.randperm(16) for _ in others])
    blocks = blocks_of(model.grid_size, 2)
    everything = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]).bool()
    of_logits = responses(model, image, 0, others, permutations, torch.zeros_like(blocks))
    of_means = responses_to_means(model, image, 0, others, torch.zeros_like(blocks))
    torch.testing.assert_close(of_logits(everything), of_means(everything), rtol=0, atol=1e-10)
    none, position, alone, both = of_means(everything)
    assert position_share(*shapley(both, alone, position, none)).item() == pytest.approx(0)


def test_blocks_are_of_whole_patches():
    assert blocks_of((4, 4), 2).view(4, 4).tolist() == [[0, 0, 1, 1]] * 2 + [[2, 2, 3, 3]] * 2
    assert blocks_of((3, 5), 1).tolist() == [0] * 15
    assert blocks_of((6, 6), 4).bincount().tolist()[0] == 4
    with pytest.raises(VitrailError, match="give 1 to 3"):
        blocks_of((3, 5), 4)


@pytest.mark.parametrize("kwargs", [{"embedding": "rope"}, {"class_token": True}])
def test_another_embedding_is_refused(run, kwargs):
    with pytest.raises(VitrailError, match="embedding 'ape' and without a class token"):
        kernel_shap_of_parts(run(**kwargs), images=4)


def test_images_are_spread_over_the_validation_split(run):
    assert [*validation(run(), 3).indices] == evenly_spread(599, 3)
