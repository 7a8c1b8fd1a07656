"""Settings and scales."""

import pytest

from replication.config.schema import read_yaml
from replication.config.settings import Settings, load_scale, load_settings
from replication.plan.catalog import load_catalog
from vitrail.errors import VitrailError


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
    with pytest.raises(VitrailError, match="scale 'lapotp' is unknown; did you mean 'laptop'"):
        load_scale(root, "lapotp")


def test_an_unknown_key_is_refused_with_a_suggestion(root):
    with pytest.raises(VitrailError, match="unknown key 'scael'; did you mean 'scale'"):
        load_settings(root, {"scael": "full"})


def test_a_lead_paper_that_there_is_not_is_refused(root):
    with pytest.raises(VitrailError, match="lead_paper 'shfit' is unknown; did you mean 'shift'"):
        load_catalog(root, lead_paper="shfit")


@pytest.mark.parametrize("setting", ["data_root", "runs_root", "results_root"])
def test_a_folder_may_be_given_from_the_users_home_or_a_variable(root, setting, monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    settings = load_settings(root, {setting: "~/data"})
    assert getattr(settings, setting) == "/home/someone/data"
    monkeypatch.setenv("SCRATCH", "/scratch/someone")
    settings = load_settings(root, {setting: "${SCRATCH}/data"})
    assert getattr(settings, setting) == "/scratch/someone/data"


@pytest.mark.parametrize("setting", ["data_root", "runs_root", "results_root"])
@pytest.mark.parametrize(
    "folder", ["", None, 7, "-runs", "runs/{paper}", "runs}", "~no-such-user/x", "$NO_SUCH/x"]
)
def test_what_cannot_be_a_folder_is_refused_by_the_settings_name(root, setting, folder):
    with pytest.raises(VitrailError, match=rf"default\.yaml.*'{setting}' is ") as error:
        load_settings(root, {setting: folder})
    assert repr(folder) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("extends: laptop", r"mine\.yaml:1: unknown key 'extends'"),
        ("seeds: few", r"mine\.yaml:1: 'seeds' is 'few'"),
        ("- laptop", r"mine\.yaml must be a mapping"),
    ],
)
def test_a_wrong_scale_is_refused_with_its_file(small_checkout, text, sentence):
    (small_checkout / "configs" / "scales" / "mine.yaml").write_text(text)
    with pytest.raises(VitrailError, match=sentence):
        load_scale(small_checkout, "mine")


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "configs" / "scales").mkdir(parents=True)
    (tmp_path / "configs" / "scales" / "odd.yaml").write_text("name: [")
    with pytest.raises(VitrailError, match=r"odd\.yaml is not valid YAML"):
        load_scale(tmp_path, "odd")
