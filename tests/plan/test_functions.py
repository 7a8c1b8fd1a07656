"""Functions are found by the name that a configuration gives them."""

import pytest

from vitrine.errors import VitrineError
from vitrine.plan.functions import import_function, source_digest


def test_a_function_is_found_by_name():
    assert import_function("vitrine.plan.functions:import_function", "here") is import_function


@pytest.mark.parametrize("name", ["vitrine.nowhere:f", "vitrine.errors:f", "vitrine.errors"])
def test_an_unknown_function_is_one_sentence(name):
    with pytest.raises(VitrineError, match=r"cannot be imported .* correct artifacts\.yaml"):
        import_function(name, "artifacts.yaml")


def test_the_digest_follows_the_source(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "module.py").write_text("x = 1\n")
    before = source_digest("some_package"), source_digest("some_package.module:f")
    (package / "module.py").write_text("x = 2\n")
    source_digest.cache_clear()
    after = source_digest("some_package"), source_digest("some_package.module:f")
    assert before[0] != after[0]
    assert before[1] != after[1]
    assert source_digest("some_package.nothing") == source_digest()
