"""Rows come back with the bits that were appended, and only to those that ask for the same."""

from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn

from replication.context import Trained
from replication.measures.resume import forget, keeping, kept_path, kept_rows
from vitrail.files import lock


def trained(folder, seed=0, weight=1.0):
    model = nn.Linear(2, 2)
    model.weight.data.fill_(weight)
    model.bias.data.zero_()
    return Trained("cpu", Path(), seed, SimpleNamespace(), SimpleNamespace(), model, folder=folder)


def test_other_arguments_weights_seeds_or_code_have_another_file(tmp_path):
    with keeping("code"):
        path = kept_path(trained(tmp_path), "features", batch=8)
        assert path == kept_path(trained(tmp_path), "features", batch=8)
        assert path != kept_path(trained(tmp_path), "features", batch=9)
        assert path != kept_path(trained(tmp_path), "others", batch=8)
        assert path != kept_path(trained(tmp_path, weight=1 + 1e-6), "features", batch=8)
        assert path != kept_path(trained(tmp_path, seed=1), "features", batch=8)
    with keeping("other code"):
        assert path != kept_path(trained(tmp_path), "features", batch=8)
    assert path.is_relative_to(tmp_path)
    assert kept_path(trained(tmp_path), "features", batch=8) is None


def test_what_a_model_has_kept_is_forgotten_and_that_of_others_is_not(tmp_path):
    with keeping("code"):
        for weight, name in ((1.0, "features"), (2.0, "features"), (1.0, "scores")):
            with kept_rows(trained(tmp_path, weight=weight), name) as rows:
                rows.append(torch.ones(3))
        forget(trained(tmp_path), "features")
        for weight, name, left in ((1.0, "features", 0), (2.0, "features", 1), (1.0, "scores", 1)):
            with kept_rows(trained(tmp_path, weight=weight), name) as rows:
                assert len(rows.read()) == left


def test_what_another_process_is_writing_is_not_kept_here(tmp_path):
    with keeping("code"):
        path = kept_path(trained(tmp_path), "features")
        with lock(path.with_suffix(".lock")), kept_rows(trained(tmp_path), "features") as rows:
            rows.append(torch.ones(3))
            assert rows.read() == []
        assert not path.exists()


def test_without_permission_nothing_is_kept(tmp_path):
    with kept_rows(trained(tmp_path), "features") as rows:
        rows.append(torch.ones(3))
        assert rows.read() == []
    assert list(tmp_path.iterdir()) == []
