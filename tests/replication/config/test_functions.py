import pytest

from replication.config.functions import import_function
from vitrail.errors import VitrailError


def test_a_function_of_the_project_is_imported():
    assert (
        import_function("replication.config.functions:import_function", "x.yaml") is import_function
    )


@pytest.mark.parametrize("name", ["os:system", "posix:system", "shutil:rmtree", "vitrailing:f"])
def test_a_function_of_another_package_is_refused_before_it_is_imported(name, monkeypatch):
    monkeypatch.setattr("importlib.import_module", lambda module: pytest.fail(module))
    with pytest.raises(VitrailError, match=r"^x\.yaml names .* src/vitrail or src/replication$"):
        import_function(name, "x.yaml")


@pytest.mark.parametrize(
    "name", ["replication.config.functions:nothing", "vitrail.nowhere:run", "vitrail"]
)
def test_a_function_that_is_not_there_is_told_with_the_file_that_names_it(name):
    with pytest.raises(VitrailError, match=r"correct x\.yaml$"):
        import_function(name, "x.yaml")
