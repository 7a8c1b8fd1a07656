"""The schemas for editors pass every file of configs/, and refuse what the models refuse."""

import json
import re

import pytest

from replication.config.schema import read_yaml
from tests.conftest import FIFTH_PAPER, ROOT
from tools.schemas import FOLDER, schemas

SCHEMAS = json.loads(json.dumps(schemas()))  # as an editor reads them
FILES = [*ROOT.glob("configs/**/*.yaml"), *FIFTH_PAPER.glob("configs/**/*.yaml")]


def named_by(file):
    line = file.read_text().splitlines()[0]
    return re.fullmatch(r"# yaml-language-server: \$schema=(.+)", line)[1]


def errors(schema, content):
    """What the schema refuses, with lists for tuples as YAML has them."""
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    return [error.message for error in validator(schema).iter_errors(content)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_file_names_its_schema_and_passes_it(file):
    path = (file.parent / named_by(file)).resolve()
    if FIFTH_PAPER not in file.parents:  # its paths are those of where it will be copied to
        assert path.parent == ROOT / FOLDER
    assert errors(SCHEMAS[path.name.removesuffix(".schema.json")], read_yaml(file)) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("recipes", {"base": {"augmentation": {"mixpu": 0.8}}, "recipes": []}),
        ("recipes", {"base": {}, "axes": {"a": {"b": {"extend": "c"}}}, "recipes": []}),
        ("recipes", {"base": {}, "recipes": [], "deltas": {"a": {"batch": {"size": "x"}}}}),
        ("paper-scale", {"recipes": {"*": {"precision": "fp8"}}}),
        ("paper-scale", {"runs": {"*": {"seed": 3}}}),
        ("artifacts", {"measures": {}, "artifacts": {"t": {"rows": 1}}}),
        ("artifacts", {"measures": {}, "artifacts": {"t": {"cell": {"value": {"key": "top1"}}}}}),
        ("artifacts", {"measures": {}, "artifacts": {"t": {"cell": {"kye": "top1"}}}}),
        ("scale", {"device": "tpu"}),
        ("paper", {"title": "t"}),
        ("datasets", {"mine": {"title": "t"}}),
        ("datasets", {"mine": {"extends": "digits", "tilte": "t"}}),
        ("claims", [{"id": "a", "each": [[{"s": 1}]]}]),
        ("claims", [{"id": "a", "each": ["sizes"]}]),
        ("paper-scale", {"recipes": {"*": {"model": {"value": 1}}}}),
    ],
)
def test_a_schema_refuses_what_the_model_refuses(name, content):
    assert errors(SCHEMAS[name], content)
