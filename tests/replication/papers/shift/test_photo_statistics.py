"""Choices on photographs are the models' own, and what ties or has no position is counted."""

from unittest import mock

import numpy as np
import pytest
import torch

from replication.measures.parameters import architectures
from replication.measures.photographs import centres, photographs
from replication.papers.shift.photo_statistics import choices, spectra
from tests.replication.placed import context_of
from vitrail.measures.selection_margins import selection_margins
from vitrail.shift import polyphase
from vitrail.shift import selection as grids

SIDE = 32
SMALL = {"img_size": SIDE, "window_size": 4, "embed_dim": 8, "depths": (1, 1), "num_heads": (1, 2)}


def noise(seed, rows=SIDE, columns=SIDE):
    return np.random.RandomState(seed).randint(256, size=(rows, columns, 3), dtype=np.uint8)


def models(selection):
    name, args = "a_swin_tiny_patch4_window7_224", {**SMALL, "selection": selection}
    return {"small": {"name": name, "args": args, "image_size": SIDE}}


@pytest.mark.parametrize("selection", ["paper", "fast"])
def test_margins_and_near_ties_are_those_of_the_models_whole_pass(tmp_path, selection, monkeypatch):
    """A tolerance for ties that is large enough makes some of the choices ties."""
    monkeypatch.setattr("replication.papers.shift.photo_statistics.TIE_RTOL", 1e-3)
    context = context_of(tmp_path, map(noise, range(20)))
    found = choices(context, models(selection), images=20, batch_size=7)
    (small,) = architectures(models(selection)).values()
    model, gaps = small.build(0).eval(), []
    break_ties = polyphase.break_ties

    def spy(scores, ties):
        if scores[0].numel() > 1:
            best = scores.flatten(1).sort(dim=1, descending=True).values.double()
            gaps.append(1 - best[:, 1] / best[:, 0])
        return break_ties(scores, ties)

    info, images = context.datasets[0], centres(photographs(context, 20), SIDE)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (info.mean, info.std))
    x = (images - mean) / std
    with selection_margins(model) as margins, torch.inference_mode():
        model(x)
    with (
        mock.patch.object(polyphase, "break_ties", spy),
        mock.patch.object(grids, "break_ties", spy),
        torch.inference_mode(),
    ):
        model(x)
    for key, value in margins.summary()._asdict().items():
        assert found[f"small/margin/{key}"] == pytest.approx(value, rel=1e-3)
    near = sum((gap <= 1e-3) for gap in gaps) > 0
    assert found["small/near"] == int(near.sum())
    assert 0 < found["small/near"] < 20
    assert found["small/equal"] == 0


@pytest.mark.parametrize("selection", ["paper", "fast"])
def test_an_image_that_repeats_within_a_patch_ties_and_is_not_certified(tmp_path, selection):
    stripes = np.tile(noise(0, SIDE, 2), (1, SIDE // 2, 1))  # two pixels of a patch's four
    context = context_of(tmp_path, [noise(1), stripes])
    found = choices(context, models(selection), images=2)
    assert max(found["small/equal"], found["small/near"]) == 1
    assert found["small/margin/smallest"] < 1
    alone = choices(context, models(selection), images=1)
    assert max(alone["small/equal"], alone["small/near"]) == 0
    assert (found["photographs"], alone["photographs"]) == (2, 1)
    assert found["sha256"] == photographs(context, 2).sha256 != alone["sha256"]


def test_an_image_whose_energy_has_no_lowest_frequency_is_weak(tmp_path):
    checkerboard = np.kron(np.indices((4, 4)).sum(0) % 2, np.ones((8, 8)))
    board = np.repeat(checkerboard[..., None] * 255, 3, axis=2).astype(np.uint8)
    thing = np.zeros((SIDE, SIDE, 3), dtype=np.uint8)
    thing[4:12, 20:28] = 255
    context = context_of(tmp_path, [thing, board])
    both, first = (spectra(context, images, SIDE) for images in (2, 1))
    assert (both["weak"], first["weak"]) == (50, 0)
    assert both["smallest"] < 1e-12
    assert first["smallest"] > 1e-3
    assert both["photographs"] == 2
