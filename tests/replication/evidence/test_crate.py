"""The research object describes every published file, and says which run made which of them."""

import hashlib
import json

import pytest

from replication.commands.results import read_published
from replication.evidence.crate import NAME, crate_of
from tests.conftest import ROOT, catalog_of

FOLDER = ROOT / "results" / "published" / "laptop"


@pytest.fixture(scope="module")
def entities():
    return {entity["@id"]: entity for entity in json.loads((FOLDER / NAME).read_text())["@graph"]}


def ids(value):
    """The identifiers that an entity's fields refer to."""
    if isinstance(value, list):
        return [name for part in value for name in ids(part)]
    return [value["@id"]] if isinstance(value, dict) else []


def test_what_is_published_is_what_the_records_give():
    catalog = catalog_of("laptop")
    records = read_published(FOLDER)
    made = crate_of(FOLDER, "laptop", catalog.report_node.papers, records)
    assert made == json.loads((FOLDER / NAME).read_text())


def test_every_file_is_described_with_its_digest(entities):
    files = {
        str(path.relative_to(FOLDER)): path
        for path in FOLDER.rglob("*")
        if path.is_file() and path.name != NAME
    }
    assert set(ids(entities["./"]["hasPart"])) == {*files}
    for name, path in files.items():
        assert entities[name]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_reference_leads_to_an_entity(entities):
    elsewhere = {"https://w3id.org/ro/crate/1.1"}
    for entity in entities.values():
        for value in entity.values():
            assert {*ids(value)} <= {*entities} | elsewhere


def test_each_table_and_figure_is_the_result_of_one_run(entities):
    runs = [entity for entity in entities.values() if entity["@type"] == "CreateAction"]
    results = [name for run in runs for name in ids(run["result"])]
    assert len(results) == len({*results})
    tables = {name for name in entities if name.endswith((".tex", ".svg")) and "/" in name}
    assert tables <= {*results}
    assert all(entities[ids(run["instrument"])[0]]["name"] == "vitrail" for run in runs)
