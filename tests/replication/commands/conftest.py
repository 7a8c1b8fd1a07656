"""A small checkout whose one paper trains micro ViTs, and the command line run in it."""

import csv
import json

import pytest
import yaml

from replication.commands.results import sha256_once
from replication.evidence.comparison import COLUMNS
from replication.evidence.tables import render
from replication.plan.catalog import load_catalog
from replication.plan.code import measuring_digest, training_digest
from replication.plan.schema import read_yaml
from tests.conftest import copy_configs_without_papers
from vitrail.files import sha256

PAPER = {"title": "Tiny", "authors": "Nobody", "venue": "nowhere", "url": "https://example.org"}
RECIPES = {
    "base": {
        "model": {
            "name": "vit_tiny_patch16_224",
            "args": {"img_size": 32, "embed_dim": 16, "depth": 1, "num_heads": 2},
        },
        "data": {"dataset": "imagenet", "image_size": 32},
        "optimizer": {"lr": 1e-3},
        "schedule": {"epochs": 3, "warmup_epochs": 1},
        "batch": {"size": 64, "micro": 64},
        "precision": "fp16",
        "ema_decay": 0.9,
    },
    "axes": {
        "mix": {
            "plain": {},
            "mixup": {"augmentation": {"mixup": 0.8}},
            "published": {
                "model": {"pretrained": True},
                "schedule": {"epochs": 0, "warmup_epochs": 0},
            },
        }
    },
    "recipes": [{"name": "{mix}"}],
}
SMOKE = {
    "recipes": {
        "*": {
            "schedule": {"epochs": 1, "warmup_epochs": 0},
            "precision": "fp32",
            "ema_decay": None,
        }
    }
}
ARTIFACTS = {
    "measures": {
        "accuracy": {"function": "vitrail.measures.accuracy:accuracy", "on": "run"},
        "facts": {"function": "vitrail.nothing:facts"},
    },
    "artifacts": {
        "table1": {
            "title": "Effect of Mixup",
            "caption": "Mixup is not needed.",
            "source": "Table 1, p. 1",
            "row_header": "Mix",
            "digits": 1,
            "rows": [
                {"label": "Plain", "mix": "plain"},
                {"label": "Mixup", "mix": "mixup"},
                {"label": "Plain again", "mix": "plain"},
            ],
            "columns": [
                {"label": "Top-1", "measure": "accuracy", "recipe": "{mix}", "key": "top1"},
                {"label": "Ratio", "measure": "facts", "key": "ratio", "exact": True},
            ],
            "cell": {},
        },
        "table2": {
            "title": "As published",
            "caption": "Published weights.",
            "source": "Table 2, p. 2",
            "rows": [{"label": "Published"}],
            "columns": [{"label": "Top-1"}],
            "cell": {"measure": "accuracy", "recipe": "published", "key": "top1"},
        },
    },
}
REFERENCE = """row,column,value,std,source
Plain,Top-1,74.8,0.1,"Table 1, p. 1"
Mixup,Ratio,0.5,,"Table 1, p. 1"
"""
CLAIMS = [
    {
        "id": "plain-is-better",
        "statement": "Plain training is better.",
        "source": "p. 1",
        "left": {"artifact": "table1", "row": "Plain", "column": "Top-1"},
        "relation": "above",
        "right": {"artifact": "table1", "row": "Mixup", "column": "Top-1"},
    }
]
CELL = {"metric": "m", "measured": 1.0, "n_seeds": 1, "verdict": "not_comparable", "scale": "smoke"}


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """The working directory: a checkout with the tiny paper."""
    configs = copy_configs_without_papers(tmp_path, lead_paper="tiny")
    paper = configs / "papers" / "tiny"
    (paper / "reference").mkdir(parents=True)
    (paper / "scales").mkdir()
    (paper / "reference" / "table1.csv").write_text(REFERENCE)
    for name, content in (
        ("paper", PAPER),
        ("recipes", RECIPES),
        ("artifacts", ARTIFACTS),
        ("claims", CLAIMS),
        ("scales/smoke", SMOKE),
    ):
        (paper / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def fine_tuning(checkout):
    """Table 2 shows a fine-tuning of "plain" and how large it is; "again" is "plain" once more."""
    paper = checkout / "configs" / "papers" / "tiny"
    recipes = read_yaml(paper / "recipes.yaml")
    tuned = {"model": {"weights_from": "plain"}, "optimizer": {"lr": 1e-4}}
    recipes["axes"]["mix"] |= {"again": {}, "tuned": tuned}
    (paper / "recipes.yaml").write_text(yaml.safe_dump(recipes, sort_keys=False))
    artifacts = read_yaml(paper / "artifacts.yaml")
    artifacts["measures"]["size"] = {"function": "vitrail.nothing:size", "on": "recipe"}
    table = artifacts["artifacts"]["table2"]
    table["rows"] = [{"label": "Tuned", "mix": "tuned"}, {"label": "Again", "mix": "again"}]
    table["columns"] = [
        {"label": "Top-1", "measure": "accuracy", "key": "top1"},
        {"label": "Size", "measure": "size", "key": "parameters"},
    ]
    table["cell"] = {"recipe": "{mix}"}
    (paper / "artifacts.yaml").write_text(yaml.safe_dump(artifacts, sort_keys=False))


@pytest.fixture
def vitrail(checkout, vitrail):
    """Run ``vitrail`` there."""
    return vitrail


@pytest.fixture
def catalog(checkout):
    """The catalogue of the checkout at one scale."""

    def load(scale="smoke"):
        return load_catalog(scale=scale)

    return load


@pytest.fixture
def make(checkout, monkeypatch):
    """Leave what a whole graph would: weights, receipts, measurements, rendered tables.

    `top1` are the accuracies of each run's seeds, `ratio` is the exact fact; None takes none.
    """

    def make(top1, ratio=0.5, commit="a" * 40, scale="laptop", results="results", code=None):
        catalog = load_catalog(scale=scale, results_root=results)
        paper = catalog.paper("tiny")
        for name, numbers in top1.items():
            run = paper.run(name)
            digests = {}
            for seed, number in zip(run.seeds, numbers, strict=True):
                run.seed_folder(seed).mkdir(parents=True, exist_ok=True)
                run.weights(seed).write_text(f"{name} {seed} {number}")
                digests[seed] = sha256(run.weights(seed))
                facts = {"device": "cpu: a processor, 1 thread", "commit": commit}
                facts["code"] = code or training_digest(run.recipe, run.info)
                (run.seed_folder(seed) / "provenance.json").write_text(json.dumps(facts))
            for job in run.jobs:
                told = {"sha256": {str(seed): digests[seed] for seed in job}}
                run.receipt(job).write_text(json.dumps(told))
            measurement = paper.measurement("accuracy", name)
            values = {str(seed): {"top1": number} for seed, number in enumerate(numbers)}
            take(catalog, measurement, values, commit, {str(s): d for s, d in digests.items()})
        if ratio is not None:
            take(catalog, paper.measurement("facts", None), {"0": {"ratio": ratio}}, commit, {})
        for artifact in paper.artifacts.values():
            if any(one.path.is_file() for one in artifact.measurements):
                render(catalog, artifact)
        return catalog

    def take(catalog, measurement, values, commit, weights):
        job = catalog.measurement_job(measurement)
        taken = {
            "name": measurement.name,
            "seeds": list(measurement.seeds),
            "recipe_hash": job.recipe.hash if job.recipe else None,
            "dataset": "digits",
            "values": values,
            "identity": job.identity,
            "code": measuring_digest(job.function, job.args, job.recipe, job.reads),
            "weights": weights,
            "provenance": {"device": "cpu", "commit": commit, "wall_seconds": 1.0},
        }
        measurement.path.parent.mkdir(parents=True, exist_ok=True)
        measurement.path.write_text(json.dumps(taken))

    sha256_once.cache_clear()
    return make


@pytest.fixture
def write_results(catalog):
    """Write the rendered files of the tiny paper's Table 1, cells given by place."""

    def write(cells, folder=None, artifact="table1"):
        here = catalog()
        for path in here.files(here.artifact("tiny", artifact)):
            target = (folder or here.results) / path.relative_to(here.results)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("rendered\n")
        target = target.with_suffix(".csv")
        with target.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            for (row, column), cell in cells.items():
                place = {"paper": "tiny", "artifact": artifact, "row": row, "column": column}
                writer.writerow({**CELL, **place, **cell})
        return target

    return write
