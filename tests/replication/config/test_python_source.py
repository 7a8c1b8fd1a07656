"""Functions are found by the name that a configuration gives them."""

import pytest

from replication.config.functions import import_function
from vitrail.errors import VitrailError


def test_a_function_is_found_by_name():
    assert (
        import_function("replication.config.functions:import_function", "here") is import_function
    )


@pytest.mark.parametrize("name", ["vitrail.nowhere:f", "vitrail.errors:f", "vitrail.errors"])
def test_an_unknown_function_is_one_sentence(name):
    with pytest.raises(VitrailError, match=r"cannot be imported .* correct artifacts\.yaml"):
        import_function(name, "artifacts.yaml")
