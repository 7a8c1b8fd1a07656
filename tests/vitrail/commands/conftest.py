"""The command line, run in an empty folder."""

import pytest


@pytest.fixture
def vitrail(tmp_path, monkeypatch, vitrail):
    """Run ``vitrail`` in the test's folder."""
    monkeypatch.chdir(tmp_path)
    return vitrail
