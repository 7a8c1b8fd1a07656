"""Make the reference pages of the site from code and schemas; `docs/conf.py` writes them.

The pages are not committed: one for each command, one of the keys of all configuration files, and
one of the registered models with their parameters and FLOPs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import timm
import torch
import typer

import vitrail.models  # noqa: F401 (registers them)
from replication.measures.flops import count
from replication.report.tables import markdown_escape, pipe_table
from tools.schemas import schemas
from vitrail.__main__ import PACKAGES
from vitrail.commands.app import WIDTH, app

ABOUT_MODELS = """\
# Models

All models that `import vitrail.models` registers with timm: `timm.create_model(NAME)`. FLOPs are
those of one image at the model's own size, as the papers count them: a multiply-add is one, with
the products of attention, without its softmax and without Fourier transforms. The last columns
compare with the plain model of the same size: an adaptive model computes what the plain one does,
and besides chooses its grids. [timm.md](timm.md) says which of timm's functions each family has.
"""
ABOUT_COMMANDS = """\
# Commands

`vitrail COMMAND`, which is also `python -m vitrail COMMAND`. `audit`, `pshap` and `mmseg` are about
one model; the others are about the replication and run in the root of a checkout. Each page is what
`vitrail COMMAND --help` prints.
"""
ABOUT_STEPS = """\
Snakemake calls these, and `vitrail --help` does not list them. You can use them by hand, too.
"""
ABOUT_CONFIGURATION = """\
# Configuration

Every key of every file in `configs/`, with its type, default and meaning. `make schemas` writes the
JSON schemas by which editors check these files. A wrong key or value is refused with a message that
names the file, the place and what is allowed.
"""
FILES = {
    "settings": "`configs/default.yaml`, and `--config key=value` of Snakemake",
    "scale": "`configs/scales/SCALE.yaml`",
    "paper-scale": "`configs/papers/PAPER/scales/SCALE.yaml`",
    "recipes": "`configs/papers/PAPER/recipes.yaml`",
    "artifacts": "`configs/papers/PAPER/artifacts.yaml`",
    "claims": "`configs/papers/PAPER/claims.yaml`",
    "paper": "`configs/papers/PAPER/paper.yaml`",
    "datasets": "`configs/datasets.yaml`, each entry",
    "weights": "`configs/weights.yaml`, each entry",
    "hardware": "`configs/hardware.yaml`, each device",
}
PREFIXES = ("a_", "octic_d8_", "octic_i8_", "octic_h8_", "d2_", "h2_", "harmonic_", "polyphase_")
"""Prefixes that turn the name of a plain model into that of a variant."""


def pages() -> dict[Path, str]:
    """Return the pages as Markdown by their paths below docs/."""
    return {
        **command_pages(),
        Path("configuration.md"): configuration_page(),
        Path("models.md"): models_page(),
    }


def command_pages() -> dict[Path, str]:
    """Return a page for each command with the text of its ``--help``, and an index of all."""
    for package in PACKAGES:
        for module in import_module(package).MODULES:
            import_module(f"{package}.{module}")
    group: Any = typer.main.get_command(app)
    context = group.make_context("vitrail", [], resilient_parsing=True)
    pages = {}
    rows: dict[bool, list[list[str]]] = {False: [], True: []}  # by whether ``--help`` leaves it out
    for name in group.list_commands(context):
        command = group.commands[name]
        own = command.make_context(name, [], parent=context, resilient_parsing=True)
        own.info_name = f"vitrail {name}"
        own.parent = None
        text = f"# `vitrail {name}`\n\n```text\n{command.get_help(own)}\n```\n"
        pages[Path("commands") / f"{name}.md"] = text
        rows[command.hidden].append([f"[`{name}`]({name}.md)", command.get_short_help_str(WIDTH)])
    parts = [
        ABOUT_COMMANDS.rstrip(),
        pipe_table(["command", "what it does"], rows[False], numbers=False),
        ABOUT_STEPS.rstrip(),
        pipe_table(["command", "what it does"], rows[True], numbers=False),
        "\n".join(["```{toctree}", ":hidden:", *(path.stem for path in pages), "```"]),
    ]
    return {Path("commands") / "index.md": "\n\n".join(parts) + "\n", **pages}


def configuration_page() -> str:
    """Return the page of all keys of the configuration files."""
    parts = [ABOUT_CONFIGURATION.rstrip()]
    written: set[str] = set()
    found = schemas()
    for name, file in FILES.items():
        schema = found[name]
        parts += [f"## {file}", *_described(schema, schema, written)]
    return "\n\n".join(parts) + "\n"


def _described(schema: Any, whole: Any, written: set[str]) -> Iterator[str]:
    """Yield the tables of a schema and of its parts, except parts in `written`; add them there."""
    entry = schema.get("items") or schema.get("additionalProperties") or {}
    if "$ref" in entry:
        schema = whole["$defs"][_part(entry)]
    if rows := _rows(schema):
        yield pipe_table(["key", "type", "default", "meaning"], rows, numbers=False)
    for name, part in whole.get("$defs", {}).items():
        if name not in written and part is not schema and (rows := _rows(part)):
            written.add(name)
            yield f"### {name}"
            yield markdown_escape(" ".join(part.get("description", "").split("\n\n")[0].split()))
            yield pipe_table(["key", "type", "default", "meaning"], rows, numbers=False)


def _rows(schema: Any) -> list[list[str]]:
    """Return a row for each key of an object's schema: key, type, default, meaning."""
    required = schema.get("required", schema.get("else", {}).get("required", ()))
    return [
        [
            f"`{key}`",
            markdown_escape(_type(field)),
            "required" if key in required else _default(field),
            markdown_escape(field.get("description", "")),
        ]
        for key, field in schema.get("properties", {}).items()
    ]


def _default(field: Mapping[str, Any]) -> str:
    value = field.get("default")
    return "" if value in (None, "", [], {}) else f"`{value}`"


def _type(field: Mapping[str, Any]) -> str:
    """Return the type of a field in a few words."""
    if "$ref" in field:
        return _part(field)
    if "const" in field:
        return repr(field["const"])
    if "enum" in field:
        return " or ".join(map(str, field["enum"]))
    for key in ("anyOf", "oneOf"):
        if key in field:
            return " or ".join(dict.fromkeys(map(_type, field[key])))
    kind = str(field.get("type", "anything"))
    if kind == "array":
        return f"list of {_type(field.get('items', {}))}"
    if kind == "object" and isinstance(more := field.get("additionalProperties"), dict):
        return f"mapping to {_type(more)}"
    return {"null": "none", "object": "mapping", "string": "text"}.get(kind, kind)


def _part(reference: Mapping[str, str]) -> str:
    return reference["$ref"].rpartition("/")[2]


def models_page() -> str:
    """Return the page of the registered models: parameters and multiply-adds of one image."""
    names = [
        name
        for name in timm.list_models()
        if timm.model_entrypoint(name).__module__.startswith("vitrail.")
    ]
    plain = {name: plain_of(name) for name in names}
    costs = {name: cost_of(name) for name in dict.fromkeys([*names, *filter(None, plain.values())])}
    rows = []
    for name in names:
        millions, gmacs, side = costs[name]
        compared = plain[name]
        of_plain = [f"`{compared}`", f"{gmacs / costs[compared][1]:.3f}"] if compared else ["", ""]
        rows.append([f"`{name}`", f"{side}", f"{millions:.1f}", f"{gmacs:.2f}", *of_plain])
    heads = ["model", "pixels", "parameters (M)", "FLOPs (G)", "plain model", "FLOPs, relative"]
    return f"{ABOUT_MODELS}\n{pipe_table(heads, rows)}\n"


def plain_of(name: str) -> str | None:
    """Return the plain model of which the model `name` is a variant, None if timm has none."""
    names = (name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix))
    return next((plain for plain in names if timm.is_model(plain)), None)


def cost_of(name: str) -> tuple[float, float, int]:
    """Return millions of parameters, billions of FLOPs of one image, and its side in pixels."""
    with torch.device("meta"):
        model: Any = timm.create_model(name).eval()
    side = int(model.pretrained_cfg.get("input_size", (3, 224, 224))[-1])
    millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    return millions, count(model, torch.empty(1, 3, side, side, device="meta")).macs / 1e9, side
