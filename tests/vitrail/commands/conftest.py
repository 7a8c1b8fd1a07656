"""The command line, run in an empty folder."""

import pytest


@pytest.fixture
def vitrail(tmp_path, monkeypatch, vitrail):
    """Run ``vitrail`` in the test's folder."""
    monkeypatch.chdir(tmp_path)
    return vitrail


def in_classes(photos, *names):
    """Move each image of a folder into the folder of its class there."""
    for path, name in zip(sorted(photos.glob("*.png")), names, strict=True):
        (photos / name).mkdir(exist_ok=True)
        path.rename(photos / name / path.name)
