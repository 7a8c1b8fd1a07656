"""Probes that are killed in the middle go on to the same bits, and features are made once."""

import copy
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file
from torch.utils.data import Subset

from replication.context import Trained
from replication.measures.resume import keeping
from replication.papers.octic.dinov2 import image_probes as probes
from replication.papers.octic.dinov2.network import build_model, teacher_file

IMAGES = {"train": 40, "val": 24}
SIZE = 8
BANK_AND_QUERIES = sum(IMAGES.values())


@pytest.fixture
def trained(recipe, info, tmp_path, monkeypatch):
    """A model whose three teachers differ; `IMAGES` are what is opened."""
    build = probes.build
    monkeypatch.setattr(
        probes,
        "build",
        lambda info, split, root, seed: Subset(
            build(info, split, root, seed), range(IMAGES[split])
        ),
    )
    for step in range(0, recipe.schedule.steps + 1, recipe.schedule.save_teacher_steps):
        torch.manual_seed(step)
        model = build_model(recipe, 10).eval()
        file = teacher_file(tmp_path, step)
        file.parent.mkdir(exist_ok=True)
        save_file(model.state_dict(), file)
    return Trained("cpu", tmp_path, 0, recipe=recipe, info=info, model=model, folder=tmp_path)


@contextmanager
def passes(model, until=None):
    """Count the images that go through a model's blocks; die when they are more than `until`."""
    seen = [0]

    def count(_, given):
        if until is not None and seen[0] + len(given[0]) > until:
            raise KeyboardInterrupt
        seen[0] += len(given[0])

    hook = model.patch_embed.register_forward_pre_hook(count)
    yield seen
    hook.remove()


def killed(measure, trained, until, **options):
    """Kill a measure of a copy, whose weights then may be those of any teacher."""
    dying = replace(trained, model=copy.deepcopy(trained.model))
    with keeping("code"), passes(dying.model, until), pytest.raises(KeyboardInterrupt):
        measure(dying, **options)


def resumed(measure, trained, under="code", **options):
    """What a measure gives where results may be kept, and how many images it passed."""
    with keeping(under), passes(trained.model) as seen:
        return measure(trained, **options), seen[0]


KNN = {"batch_size": SIZE, "neighbours": [3, 20], "turned": 8}
EIGHT_TURNS = 8 * KNN["turned"]


def test_neighbours_go_on_where_they_were_killed(trained):
    whole = probes.knn(trained, **KNN)
    images = 2 * BANK_AND_QUERIES + EIGHT_TURNS
    begun = 0
    for until in (20, 60, 60, 40):  # in the bank, the queries, the turns, the untrained model
        killed(probes.knn, trained, until, **KNN)
        begun += until // SIZE * SIZE
    values, passed = resumed(probes.knn, trained, **KNN)
    assert values == whole
    assert passed == images - begun
    assert resumed(probes.knn, trained, **KNN) == (whole, EIGHT_TURNS)  # whose features are large


def test_cells_go_on_where_they_were_killed(trained):
    whole = probes.cells(trained, batch_size=SIZE)
    killed(probes.cells, trained, 80, batch_size=SIZE)
    values, passed = resumed(probes.cells, trained, batch_size=SIZE)
    assert values == whole
    assert passed == BANK_AND_QUERIES + 2 * IMAGES["val"] - 80


def test_the_progress_of_a_training_goes_on_and_shares_what_neighbours_were_found_by(trained):
    options = {"batch_size": SIZE}
    whole = probes.progress(trained, **options)
    killed(probes.progress, trained, BANK_AND_QUERIES + 24, **options)
    values, passed = resumed(probes.progress, trained, **options)
    assert values == whole
    assert passed == 2 * BANK_AND_QUERIES - 24
    _, passed = resumed(probes.knn, trained, **KNN)
    assert passed == EIGHT_TURNS  # neither the last teacher nor the first is seen again
    weights = {file.name.split("-")[1] for file in (trained.folder / "kept").glob("tokens-*.kept")}
    assert len(weights) == 1  # those of the other teachers are not kept any longer


@pytest.mark.parametrize(
    ("under", "options"),
    [("other code", {}), ("code", {"batch_size": 16}), ("code", {"precision": "bf16"})],
)
def test_other_code_and_arguments_do_not_read_what_was_kept(trained, under, options):
    given = {"batch_size": SIZE, "accuracy_alone": True}
    resumed(probes.knn, trained, **given)
    assert resumed(probes.knn, trained, **given)[1] == 0
    values, passed = resumed(probes.knn, trained, under, **given | options)
    assert passed == BANK_AND_QUERIES
    assert values == probes.knn(trained, **given | options)


def test_other_weights_do_not_read_what_was_kept(trained):
    resumed(probes.knn, trained, batch_size=SIZE, accuracy_alone=True)
    with torch.no_grad():
        next(trained.model.parameters()).mul_(1.5)
    _, passed = resumed(probes.knn, trained, batch_size=SIZE, accuracy_alone=True)
    assert passed == BANK_AND_QUERIES


@pytest.mark.parametrize("steps_done", [3, 8])  # of 5 to choose a classifier, and 5 to train it
def test_linear_classifiers_go_on_where_they_were_killed(trained, monkeypatch, steps_done):
    options = {"steps": 5, "batch_size": SIZE, "rates": (1e-2, 1e-1)}
    held_out = IMAGES["train"] // 5
    images = 2 * 5 * SIZE + held_out + IMAGES["val"]
    whole = probes.linear(trained, **options)
    monkeypatch.setattr(probes, "SAVE_SECONDS", 0)
    done = steps_done * SIZE + (held_out if steps_done > 5 else 0)
    killed(probes.linear, trained, done, **options)
    values, passed = resumed(probes.linear, trained, **options)
    assert values == whole
    assert passed == images - done
    assert resumed(probes.linear, trained, **options)[1] == images
