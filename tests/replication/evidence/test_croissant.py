"""Every dataset behind published results is described: its files, licence, classes and splits."""

import json

import pytest

from replication.commands.results import read_published
from replication.evidence.croissant import FOLDER, croissant_of, croissants_of
from replication.plan.datasets import load_registry
from tests.conftest import ROOT

REGISTRY = load_registry(ROOT / "configs" / "datasets.yaml")


@pytest.mark.parametrize("scale", ["laptop", "study"])
def test_the_datasets_that_a_published_scale_read_are_described(scale):
    folder = ROOT / "results" / "published" / scale
    made = croissants_of(read_published(folder).values())
    assert {path.name for path in (folder / FOLDER).iterdir()} == {
        name.removeprefix(f"{FOLDER}/") for name in made
    }
    for name, content in made.items():
        assert (folder / name).read_bytes() == content


@pytest.mark.parametrize("name", REGISTRY)
def test_a_description_has_what_croissant_requires(name):
    """The required properties of https://docs.mlcommons.org/croissant/docs/croissant-spec.html."""
    info = REGISTRY[name]
    made = json.loads(json.dumps(croissant_of(info)))
    required = {"@context", "@type", "conformsTo", "name", "description", "license", "url"}
    assert required <= {key for key, value in made.items() if value}
    assert [file["name"] for file in made["distribution"]] == [file.name for file in info.files]
    for described, file in zip(made["distribution"], info.files, strict=True):
        algorithm, digest = file.checksum
        assert described[algorithm] == digest
        assert described["contentUrl"] == file.url[0]
    counted = {record["splits/name"]: record["splits/images"] for record in splits(made)}
    assert counted == {"train": info.train_images, "val": info.val_images}


def splits(made):
    """The records of the splits, each with exactly the declared fields."""
    (record_set,) = made["recordSet"]
    fields = {field["@id"] for field in record_set["field"]}
    assert all({*record} == fields for record in record_set["data"])
    return record_set["data"]
