"""Settings, scales, and the schema that editors read."""

import json

import pytest

from vitrine.errors import VitrineError
from vitrine.plan.schema import read_yaml
from vitrine.plan.settings import Settings, load_scale, load_settings


def test_the_json_schema_is_in_step_with_the_model(root):
    """Refresh it with: python -m vitrine.plan.settings > workflow/schemas/config.schema.json."""
    written = json.loads((root / "workflow" / "schemas" / "config.schema.json").read_text())
    assert written == Settings.model_json_schema()


def test_the_default_file_says_what_the_model_says(root):
    assert read_yaml(root / "configs" / "default.yaml") == Settings().model_dump()


def test_every_key_of_the_default_file_is_commented(root):
    lines = (root / "configs" / "default.yaml").read_text().splitlines()
    assert all("#" in line for line in lines if ":" in line)


def test_a_copied_scale_is_called_like_its_file(small_checkout):
    """Else a copy would overwrite the results of what it was copied from."""
    scales = small_checkout / "configs" / "scales"
    (scales / "mine.yaml").write_text((scales / "laptop.yaml").read_text())
    assert load_scale(small_checkout, "mine").name == "mine"


def test_an_unknown_scale_is_refused_with_a_suggestion(root):
    with pytest.raises(VitrineError, match="scale 'lapotp' is unknown; did you mean 'laptop'"):
        load_scale(root, "lapotp")


def test_an_unknown_key_is_refused_with_a_suggestion(root):
    with pytest.raises(VitrineError, match="unknown key 'scael'; did you mean 'scale'"):
        load_settings(root, {"scael": "full"})


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "configs" / "scales").mkdir(parents=True)
    (tmp_path / "configs" / "scales" / "odd.yaml").write_text("name: [")
    with pytest.raises(VitrineError, match=r"odd\.yaml is not valid YAML"):
        load_scale(tmp_path, "odd")
