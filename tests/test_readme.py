"""What README and the pages of docs/ tell a reader to type runs."""

import csv
import importlib.util
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys

import pytest
import torch
import yaml

from replication.datasets.miniature import write_miniature
from replication.papers.octic.dinov2.network import build_model
from replication.plan.catalog import load_catalog
from replication.training.weights import save_weights
from tests.conftest import ROOT, catalog_of

RECIPES = {
    "make_shift_equivariant(model)": (
        "error = equivariance_error(model, images, random_shifts(images, shifts=2, seed=1))\n"
        "assert error.within\n"
        "assert all(weight.grad is not None for weight in model.parameters())"
    ),
    "GroupAverage": (
        "assert error.within\n"
        "assert not equivariance_error(plain, torch.rand(1, 3, 224, 224),"
        " Group(ELEMENTS, transform)).within"
    ),
    "features_only=True, dynamic": (
        "assert [tuple(each.shape) for each in maps] =="
        " [(1, 96 * 2**n, 56 // 2**n, 112 // 2**n) for n in range(4)]"
    ),
    "position_shap(model, DataLoader": (
        "low, high = result.interval\n"
        "assert 0 <= low <= result.mean <= high <= 1\n"
        "assert len(result.samples) == 8"
    ),
    "auto-rope": (
        "assert torch.equal(larger.pos_embed.gamma, model.pos_embed.gamma)\n"
        "assert larger(torch.rand(1, 3, 320, 320)).shape == (1, 10)"
    ),
    "transformers": (
        "assert position_shap(model, torch.rand(4, 3, 224, 224)).mean > 0\n"
        "assert model.positions == 197"
    ),
    "rescale_pos_embed": (
        "from vitrail.variance.rescaling import patch_positions\n"
        "usual = rescale_pos_embed(model, 448, antialias=False)\n"
        "ratio = patch_positions(larger).var() / patch_positions(usual).var()\n"
        "assert abs(ratio - 1 / 0.7295) < 1e-3\n"  # Table 2: k of 2D, bicubic
        "assert logits.shape == (1, 1000)"
    ),
    "RandomErasing": (
        "assert abs(mixed.var() / images.var() - (1 - 0.8 / 2.6)) < 0.04\n"  # Proposition 1
        "assert abs(erased.var() / images.var() - 1) < 0.02"
    ),
    "torch.export.save": (
        "images = torch.rand(3, 3, 224, 224)\n"
        "torch.testing.assert_close(again(images), model(images))"
    ),
    "torch.compile": (
        "assert logits.shape == (2, 1000)\n"
        "with torch.inference_mode():\n"
        "    turned = torch.rand(1, 3, 224, 224, device=device)\n"
        "    torch.testing.assert_close(model(turned), model(turned.rot90(1, (2, 3))))"
    ),
    "torch.autocast": (
        "assert loss.isfinite()\n"
        "assert all(weight.grad is not None for weight in model.parameters())"
    ),
    "DistributedDataParallel": (
        "assert all(weight.grad is not None for weight in model.parameters())"
    ),
    "save_for_hf": (
        "import torch\n"
        "images = torch.rand(2, 3, 224, 224)\n"
        "assert torch.equal(again(images), model(images))\n"
        "assert torch.equal(again(images.roll((3, 5), (2, 3))), model(images))"
    ),
    "circular_consistency(model, images)": (
        "assert 0 <= circular_consistency(model, images, pairs=2).consistency <= 100\n"
        "assert len(accuracy_under_turns(model, loader).right) == 8"
    ),
}
"""What a recipe of docs/library.md is told by, and what holds after it has run."""

CHECKS = {
    "def on_pixels": (
        "images = torch.rand(1, 3, 224, 224)\n"
        "with torch.no_grad():\n"
        "    features, moved = on_pixels(images), on_pixels(images.roll((5, 30), (2, 3)))\n"
        "assert torch.equal(moved, features.roll((5, 30), (2, 3)))\n"
        "assert logits.shape == (1, 5, 224, 224)"
    ),
    "UPerNet": (
        "assert logits.shape == (1, 150, 224, 448)\n"
        "assert logits.std() > 1e-3\n"
        "torch.testing.assert_close(shifted, logits.roll((7, 30), (2, 3)))"
    ),
    "octic_h8_vit": "assert change < 1e-5 * model(image).abs().max()",
    "operations": "assert 3.5 < 4.6392 / (operations.macs / 1e9) < 4",
}
"""The same of the rest of that page, but for what needs more than torch and timm."""

OF_EXTENSIONS = {
    "harmonic_swin": (
        "with torch.inference_mode():\n"
        "    logits = model(image)\n"
        "    torch.testing.assert_close(model(shifted), logits, rtol=0, atol=1e-4)\n"
        "assert logits.std() > 0.1"
    ),
}
"""The same of docs/extensions.md."""

HUGGING_FACE = """
import sys, types
import torch


class Embeddings(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embeddings = torch.nn.Conv2d(3, 8, 16, 16)
        self.cls_token = torch.nn.Parameter(torch.randn(1, 1, 8))
        self.position_embeddings = torch.nn.Parameter(torch.randn(1, 197, 8))

    def forward(self, pixel_values):
        tokens = self.patch_embeddings(pixel_values).flatten(2).mT
        tokens = torch.cat([self.cls_token.expand(len(tokens), -1, -1), tokens], dim=1)
        return tokens + self.position_embeddings


class ViTForImageClassification(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.vit = torch.nn.Module()
        self.vit.embeddings = Embeddings()
        self.classifier = torch.nn.Linear(8, 3)

    @classmethod
    def from_pretrained(cls, name):
        return cls()

    def forward(self, pixel_values):
        tokens = self.vit.embeddings(pixel_values).tanh().mean(dim=1)
        return types.SimpleNamespace(logits=self.classifier(tokens))


sys.modules["transformers"] = types.ModuleType("transformers")
sys.modules["transformers"].ViTForImageClassification = ViTForImageClassification
"""
"""The attributes of a model of transformers, which is no dependency."""

OF_EXTRAS = [
    *("typer", "rich", "pydantic", "scipy", "sklearn", "pandas", "matplotlib"),
    *("seaborn", "snakemake", "mmcv", "mmengine", "mmseg", "cv2"),
]
"""What the extras install, as it is imported; yaml comes with timm, filelock with torch."""

PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "FINDINGS.md",
    *sorted(
        str(page.relative_to(ROOT))
        for page in (ROOT / "docs").rglob("*.md")
        if "api" not in page.parts and "commands" not in page.parts
    ),
]
BUILT = {
    *("docs/models.md", "docs/configuration.md", "docs/small.html", "docs/laptop.html"),
    *("docs/commands/index.md", "docs/api/modules.rst"),
}
"""What `make docs` makes, and git ignores."""


def snippets(root, page="docs/library.md"):
    return re.findall(r"```python\n(.*?)```", (root / page).read_text(), re.DOTALL)


def run(code, folder):
    """Run Python in a process of its own; return what it prints."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_run(snippet):
    """A snippet as written, but for weights that would be fetched, and for what takes minutes."""
    fetched = re.compile(r"(?<!local-dir:my-swin\", )pretrained=True")
    return fetched.sub("pretrained=False", snippet).replace(
        "torch.compile(model,", 'torch.compile(model, backend="eager",'
    )


def checked(found, checks):
    """Code that runs the snippets, each with its check behind it and with names of its own."""
    code = f"import sys\nfor name in {OF_EXTRAS}: sys.modules[name] = None\n"
    for what, check in checks.items():
        (snippet,) = [snippet for snippet in found if what in snippet]
        code += f"exec(compile({as_run(snippet) + check!r}, {what!r}, 'exec'), {{}})\n"
    return code


@pytest.mark.slow
def test_the_recipes_run_with_torch_and_timm_alone(root, tmp_path, monkeypatch):
    """In one process for all, and of the data-parallel one in one process instead of four."""
    for name, value in (("MASTER_ADDR", "localhost"), ("RANK", "0"), ("WORLD_SIZE", "1")):
        monkeypatch.setenv(name, value)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        monkeypatch.setenv("MASTER_PORT", str(free.getsockname()[1]))
    run(HUGGING_FACE + checked(snippets(root), RECIPES), tmp_path)


@pytest.mark.slow
def test_the_other_snippets_of_methods_run_with_torch_and_timm_alone(root, tmp_path):
    run(checked(snippets(root), CHECKS), tmp_path)
    run(checked(snippets(root, "docs/extensions.md"), OF_EXTENSIONS), tmp_path)


def test_a_recipe_has_at_most_ten_lines_of_code(root):
    text = (root / "docs/library.md").read_text().split("## Recipes\n")[1].split("\n## ")[0]
    recipes = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(recipes) == len(RECIPES)
    longest = max(len([line for line in recipe.splitlines() if line]) for recipe in recipes)
    assert longest <= 10


@pytest.mark.slow
def test_the_configuration_is_one_of_a_shift_equivariant_segmenter(root, tmp_path):
    from mmengine.config import Config
    from mmseg.registry import MODELS

    import vitrail.segmentation  # noqa: F401

    (snippet,) = [snippet for snippet in snippets(root) if snippet.startswith("_base_")]
    (tmp_path / "config.py").write_text(snippet)
    config = Config.fromfile(tmp_path / "config.py")
    config.model.decode_head.norm_cfg.type = config.model.auxiliary_head.norm_cfg.type = "BN"
    model = MODELS.build(config.model).eval()
    image = torch.randn(1, 3, 256, 256)
    with torch.inference_mode():
        shifted, logits = model(image.roll((7, 30), (2, 3))), model(image)
    assert logits.shape == (1, 150, 256, 256)
    torch.testing.assert_close(shifted, logits.roll((7, 30), (2, 3)))


@pytest.mark.slow
def test_a_teacher_classifies_a_folder(root, registry, tmp_path):
    """As written, but for the places of run, photo and folders."""
    recipe = catalog_of("laptop").paper("octic").recipe("dinov2-vit-l")
    backbone, file = build_model(recipe, 0), tmp_path / "weights.safetensors"
    save_weights(backbone.state_dict(), file, recipe, seed=0)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
    write_miniature(registry["imagenet"], tmp_path)
    photos = tmp_path / "imagenet"
    (snippet,) = [snippet for snippet in snippets(root) if "load_teacher" in snippet]
    for written, here in (
        ("runs/octic/RUN/seed0", tmp_path),
        ("photo.jpg", next(photos.glob("val/*/*"))),
        ("photos/", f"{photos}/"),
    ):
        snippet = snippet.replace(written, str(here))
    said = run(f"{snippet}\nassert features.shape == (1, teacher.num_features)", root)
    assert 0 <= float(said) <= 100


def test_a_published_table_becomes_latex_with_its_rows_and_columns_in_order(root):
    (snippet,) = snippets(root, "docs/results.md")
    with (root / "results/published/laptop/octic/table1.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    lines = run(snippet, root).splitlines()
    columns = [*dict.fromkeys(cell["column"] for cell in cells)]
    heads = lines[lines.index(r"\toprule") + 1].removesuffix(r" \\").split(" & ")
    assert heads == ["", *columns]
    body = lines[lines.index(r"\midrule") + 1 : lines.index(r"\bottomrule")]
    rows = [line.removesuffix(r" \\").split(" & ") for line in body]
    assert [row[0] for row in rows] == [*dict.fromkeys(cell["row"] for cell in cells)]
    numbers = {(cell["row"], cell["column"]): cell["measured"] for cell in cells}
    shown = {
        (label, column): number
        for label, *entries in rows
        for column, number in zip(columns, entries, strict=True)
    }
    assert shown == {
        place: f"{float(number):.2f}" if number else "--" for place, number in numbers.items()
    }


def test_every_snippet_is_checked(root):
    assert len(snippets(root)) == len(RECIPES) + len(CHECKS) + 2
    assert len(snippets(root, "docs/extensions.md")) == len(OF_EXTENSIONS)


def test_the_readme_shows_snippets_of_the_librarys_page(root):
    assert snippets(root, "README.md")
    assert {*snippets(root, "README.md")} <= {*snippets(root)}


def test_every_target_that_a_page_names_exists(root):
    pages = ["README.md", "docs/reproduce.md", "docs/cluster.md"]
    text = "".join((root / page).read_text() for page in pages)
    named = set(re.findall(r"^    snakemake (\w+)", text, re.MULTILINE))
    assert {"variance_table5", "shift", "shift_table1"} <= named
    assert named <= set(catalog_of("laptop").targets)


def test_every_scale_is_in_the_table_of_scales(root):
    from replication.config.settings import known_scales

    table = (root / "docs" / "reproduce.md").read_text().split("## Scales")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)) == set(known_scales(root))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_linked_file_exists(root, page):
    links = re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", (root / page).read_text())
    places = {os.path.normpath((root / page).parent / link) for link in links}
    missing = {os.path.relpath(place, root) for place in places if not os.path.exists(place)}
    assert missing <= BUILT


def test_the_readme_is_read_in_a_few_minutes(root):
    """Its words but for code, numbers and the addresses of links."""
    text = (root / "README.md").read_text()
    for left_out in (r"<!--.*?-->", r"(?s)```.*?```", r"(?m)^    .*$", r"\]\([^)]*\)"):
        text = re.sub(left_out, "", text)
    assert sum(any(map(str.isalpha, word)) for word in text.split()) <= 600


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "papers").glob("*.md")), ids=str)
def test_the_page_of_a_paper_names_modules_that_there_are(page):
    named = set(re.findall(r"`(vitrail(?:\.\w+)+)`", page.read_text()))
    assert named
    assert [name for name in named if importlib.util.find_spec(name) is None] == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "papers").glob("*.md")), ids=str)
def test_the_page_of_a_paper_includes_its_findings(root, page):
    start, end = re.findall(r':(?:start-after|end-before): "(.+)"', page.read_text())
    findings = (root / "FINDINGS.md").read_text()
    assert findings.count(f"\n{start}\n") == 1
    section = findings.partition(f"\n{start}\n")[2].partition(f"\n{end}\n")[0]
    assert start.startswith(f"## {page.stem}: ")
    assert "\n- **" in section
    assert "\n## " not in section


@pytest.mark.slow
def test_the_page_of_the_first_table_shows_what_vitrail_why_prints(root, vitrail):
    text = (root / "docs" / "start.md").read_text()
    questions = re.findall(r"^    (vitrail why .+)$", text, re.M)
    blocks = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    assert len(questions) == len(blocks) == 1
    for question, block in zip(questions, blocks, strict=True):
        out = vitrail(*shlex.split(question)[1:], "--results", "results/none").out
        for line in block.splitlines():
            if not line.startswith("measured"):
                assert f"\n{line}\n" in out


@pytest.mark.slow
def test_the_first_tables_edit_makes_one_training_its_measurement_and_the_table_due(root, tmp_path):
    page = (root / "docs" / "start.md").read_text()
    edit = r"above `(\w+:)`\) in `(\S+)`:\n\n```yaml\n(.*?)```"
    place, file, line = re.search(edit, page, re.S).groups()
    shutil.copytree(root / "configs", tmp_path / "configs")
    recipes, rest = (root / file).read_text().split(f"\n{place}\n")
    (tmp_path / file).write_text(f"{recipes}\n{line}{place}\n{rest}")
    before, after = catalog_of("laptop"), load_catalog(tmp_path, scale="laptop")
    assert len(after.runs.keys() - before.runs.keys()) == 1
    assert len(after.measurements.keys() - before.measurements.keys()) == 1
    changed = {
        artifact.target
        for path, artifact in after.renderings.items()
        if after.node(path).identity != before.node(path).identity
    }
    assert changed == {"octic_table5"}
