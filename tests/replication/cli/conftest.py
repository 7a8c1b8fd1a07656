"""A small checkout whose one paper trains micro ViTs, and the command line run in it."""

import csv
import functools
import json

import pytest

from replication.claims.comparison import COLUMNS
from replication.config.schema import as_yaml, read_yaml
from replication.plan.catalog import load_catalog
from replication.publishing.publish import fault_of_commit, replace_folder
from replication.records.records import complete, digest_once
from replication.report.ledger import RECORDS, as_lines, ledger_of, published_folder
from replication.report.tables import read_measured, render
from tests import repository
from tests.conftest import copy_configs_without_papers
from vitrail import provenance
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
        "batch": {"size": 64, "micro": 8},
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
SMALL = {
    "datasets": {"imagenet": "digits"},
    "recipes": {
        "*": {
            "schedule": {"epochs": 1, "warmup_epochs": 0},
            "precision": "fp32",
            "ema_decay": None,
        }
    },
}
ARTIFACTS = {
    "measures": {
        "accuracy": {"function": "replication.measures.accuracy:accuracy", "on": "run"},
        "facts": {"function": "replication.measures.parameters:count"},
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
NUMBERS = {"plain": [80.0, 81.0, 82.0], "mixup": [70.0, 71.0, 72.0]}
CELL = {"metric": "m", "measured": 1.0, "n_seeds": 1, "verdict": "not_comparable", "scale": "small"}


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """The working directory: a checkout with the tiny paper."""
    configs = copy_configs_without_papers(tmp_path, lead_paper="tiny")
    laptop = configs / "scales" / "laptop.yaml"
    text = laptop.read_text()
    laptop.write_text(text.replace("datasets:\n", "datasets:\n  imagenet: digits\n"))
    paper = configs / "papers" / "tiny"
    (paper / "reference").mkdir(parents=True)
    (paper / "scales").mkdir()
    (paper / "reference" / "table1.csv").write_text(REFERENCE)
    for name, content in (
        ("paper", PAPER),
        ("recipes", RECIPES),
        ("artifacts", ARTIFACTS),
        ("claims", CLAIMS),
        ("scales/small", SMALL),
        ("scales/full", {}),
        ("scales/laptop", {"runs": {"*": {"seeds": 3}}}),
    ):
        (paper / f"{name}.yaml").write_text(as_yaml(content))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def fine_tuning(checkout):
    """Table 2 shows a fine-tuning of "plain" and how large it is; "again" is "plain" once more."""
    paper = checkout / "configs" / "papers" / "tiny"
    recipes = read_yaml(paper / "recipes.yaml")
    tuned = {"model": {"weights_from": "plain"}, "optimizer": {"lr": 1e-4}}
    recipes["axes"]["mix"] |= {"again": {}, "tuned": tuned}
    (paper / "recipes.yaml").write_text(as_yaml(recipes))
    artifacts = read_yaml(paper / "artifacts.yaml")
    artifacts["measures"]["size"] = {"function": "vitrail.nothing:size", "on": "recipe"}
    table = artifacts["artifacts"]["table2"]
    table["rows"] = [{"label": "Tuned", "mix": "tuned"}, {"label": "Again", "mix": "again"}]
    table["columns"] = [
        {"label": "Top-1", "measure": "accuracy", "key": "top1"},
        {"label": "Size", "measure": "size", "key": "parameters"},
    ]
    table["cell"] = {"recipe": "{mix}"}
    (paper / "artifacts.yaml").write_text(as_yaml(artifacts))


@pytest.fixture
def vitrail(checkout, vitrail):
    """Run ``vitrail`` there."""
    return vitrail


@pytest.fixture
def catalog(checkout):
    """The catalogue of the checkout at one scale."""

    def load(scale="small"):
        return load_catalog(scale=scale)

    return load


@pytest.fixture
def git(checkout, monkeypatch):
    """Git in the checkout, whose first commit holds everything there."""

    monkeypatch.setattr(provenance, "PACKAGE", checkout / "src" / "vitrail")
    fault_of_commit.cache_clear()
    (checkout / ".gitignore").write_text("/runs/\n/results/*\n!/results/published/\n")
    (checkout / "README.md").write_text("Read me.\n")
    repository.begin(checkout)
    return functools.partial(repository.git, checkout)


@pytest.fixture
def commit(git):
    """Commit what is published, or was done to it."""

    def run():
        git("add", ".")
        git("commit", "--quiet", "-m", "Publish")

    return run


@pytest.fixture
def draw(checkout):
    """Render an artifact from the records that there are, and leave the record of it."""

    def draw(catalog, artifact, commit="a" * 40):
        node = catalog.rendering_node(artifact).model_copy(update={"commit": commit})
        measured = read_measured(artifact)
        files = render(artifact, node.output.parent, measured)
        inputs = {str(path): values["sha256"] for path, values in measured.items()}
        complete(node, {"inputs": inputs, "outputs": {file.name: sha256(file) for file in files}})

    return draw


@pytest.fixture
def rewrite():
    """Change what a record's file says, as by hand."""

    def rewrite(path, change):
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return rewrite


@pytest.fixture
def make(checkout, draw):
    """Leave what a whole graph would: weights, the records of all nodes, rendered tables.

    `top1` are the accuracies of each run's seeds, `ratio` is the exact fact; None takes none.
    """

    def make(top1, ratio=0.5, commit="a" * 40, scale="laptop", results="results", code=None):
        catalog = load_catalog(scale=scale, results_root=results)
        paper = catalog.paper("tiny")
        for name, numbers in top1.items():
            measured = paper.measurements("accuracy", name)
            for run, accuracy, number in zip(paper.runs(name), measured, numbers, strict=True):
                weights = train(catalog, run, number, commit, code)
                take(catalog, accuracy, {"top1": number}, commit, weights=weights)
        if ratio is not None:
            take(catalog, paper.measurement("facts", None), {"ratio": ratio}, commit)
        for artifact in paper.artifacts.values():
            if any(path.is_file() for path in artifact.records):
                draw(catalog, artifact, commit)
        return catalog

    def train(catalog, run, number, commit, code):
        node = catalog.training_node(run)
        code = code or node.code
        facts = {"device": "cpu: a processor, 1 thread", "commit": commit, "code": code}
        run.folder.mkdir(parents=True, exist_ok=True)
        run.weights.write_text(f"{run.name} {run.seed} {number}")
        digest = sha256(run.weights)
        complete(node.model_copy(update={"code": code}), {"sha256": digest, "facts": facts})
        return digest

    def take(catalog, measurement, values, commit, **weights):
        node = catalog.measurement_node(measurement)
        origin = {"device": "cpu", "commit": commit, "wall_seconds": 1.0}
        complete(node, {"values": values, "code": node.code, **weights, "provenance": origin})

    digest_once.cache_clear()
    return make


@pytest.fixture
def write_results(catalog):
    """Write what is rendered of the tiny paper's Table 1 and its record, cells given by place."""

    def write(cells, folder=None, artifact="table1"):
        here = catalog()
        shown = here.paper("tiny").artifacts[artifact]
        complete(here.rendering_node(shown), {"inputs": {}, "outputs": {}})
        for path in here.files(shown):
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


@pytest.fixture
def publish(make):
    """Publish numbers as if a commit had made them."""

    def run(top1=NUMBERS, **given):
        catalog = make(top1, **given)
        artifact = catalog.paper("tiny").artifacts["table1"]
        files = {
            str(file.relative_to(catalog.results)): file.read_bytes()
            for file in catalog.files(artifact)
        }
        records = ledger_of(catalog).behind(catalog.rendering(artifact))
        files[f"tiny/{RECORDS}"] = as_lines(records.values())
        replace_folder(published_folder(catalog), files, records, catalog, prune=False)
        return catalog

    return run
