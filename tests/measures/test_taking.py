"""A measurement says what it was taken on, or in one sentence why it cannot be taken."""

import json

import pytest

from vitrine.catalog import load_catalog
from vitrine.errors import VitrineError
from vitrine.functions import import_function
from vitrine.measures.context import Context
from vitrine.measures.taking import take


def test_a_measurement_says_what_it_was_taken_on(root, tmp_path, monkeypatch):
    catalog = load_catalog(root, runs_root=str(tmp_path), scale="smoke")
    measurement = catalog.paper("variance").measurement("upsampling", None)
    taken = take(measurement, catalog)
    assert list(taken["values"]) == ["0"]
    assert taken["args"] == measurement.args
    assert taken["provenance"]["wall_seconds"] >= 0
    json.dumps(taken, allow_nan=False)


def test_every_measure_of_every_paper_can_be_imported(root):
    for scale in ("laptop", "full"):
        for measurement in load_catalog(root, scale=scale).measurements.values():
            assert callable(import_function(measurement.function, "artifacts.yaml"))


def test_an_untrained_run_is_one_sentence(root, tmp_path):
    catalog = load_catalog(root, runs_root=str(tmp_path))
    measurement = catalog.paper("variance").measurement("accuracy", "vit_s-mixup0.0-cutmix0.0")
    with pytest.raises(VitrineError, match=r"weights\.safetensors does not exist"):
        take(measurement, catalog)


def test_a_gpus_measurement_is_refused_without_one(root, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    catalog = load_catalog(root, runs_root=str(tmp_path), scale="full")
    measurement = catalog.paper("variance").measurement("accuracy", "vit_s-mixup0.0-cutmix0.0")
    with pytest.raises(VitrineError, match="this machine has none; choose another scale"):
        take(measurement, catalog)


def test_a_context_is_plain_data():
    context = Context("cpu", "data", 3)
    assert (context.device, context.seed, context.workers) == ("cpu", 3, 0)
