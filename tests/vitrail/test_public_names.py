"""`vitrail` has one name for each thing a user wants, and imports none of them by itself."""

import ast
import inspect
import subprocess
import sys

import grimp
import pytest

import vitrail
from replication.plan import module_digest

IMPORTS_ITS_PLACE = {"replication.jobs.fork_server", "replication.plan.module_digest"}
"""Modules that only ask where the package lies."""


def test_importing_the_package_loads_nothing_of_torch_nor_of_ours():
    code = "import sys, vitrail; dir(vitrail); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert not {"torch", "timm", "numpy", "torchvision"} & {*loaded}
    assert [name for name in loaded if name.split(".")[0] == "vitrail"] == ["vitrail"]


@pytest.mark.parametrize("name", sorted(vitrail._PUBLIC))
def test_a_public_name_is_that_of_its_module_with_a_docstring_of_its_own(name):
    found = getattr(vitrail, name)
    module, _, attribute = vitrail._PUBLIC[name].partition(":")
    assert (found.__module__, found.__qualname__) == (module, attribute)
    assert len(inspect.getdoc(found).splitlines()[0]) > 20
    assert name in dir(vitrail)
    assert f"`{name}`" in vitrail.__doc__


def test_type_checkers_see_what_the_interpreter_finds():
    (block,) = [
        node
        for node in ast.parse(inspect.getsource(vitrail)).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in imports
        for alias in node.names
    }
    renamed = [node for node in block.body if isinstance(node, ast.Assign)]
    seen |= {ast.unparse(node.targets[0]): seen.pop(ast.unparse(node.value)) for node in renamed}
    assert seen == vitrail._PUBLIC


def test_a_name_that_there_is_not_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'vitrail' has no attribute 'positon_shap'"):
        _ = vitrail.positon_shap


def test_no_module_of_ours_imports_a_public_name_by_the_package():
    """The digest of the code behind a number follows imports to the module that has the code."""
    graph = grimp.build_graph(*module_digest.OURS, cache_dir=None)
    assert graph.find_modules_that_directly_import("vitrail") == IMPORTS_ITS_PLACE
