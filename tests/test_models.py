"""Every model of ours is found by its name, in the registry and in the source."""

import ast

from timm.models import _registry

import vitrine.models  # noqa: F401


def registered():
    """Our models in timm's registry, with the module of each entrypoint."""
    entrypoints = _registry._model_entrypoints
    return {
        name: function.__module__
        for name, function in entrypoints.items()
        if function.__module__.startswith("vitrine.")
    }


def test_every_registered_model_is_a_function_of_its_name_at_its_modules_top_level(root):
    found = {}
    for path in (root / "src" / "vitrine").glob("*/*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and any(
                ast.unparse(decorator) == "register_model" for decorator in node.decorator_list
            ):
                found[node.name] = f"vitrine.{path.parent.name}.{path.stem}"
    assert found == registered()
    assert {"octic_d8_vit_22b_patch16_224", "a_swin_tiny_patch4_window7_224"} < set(found)
