"""``python -m tools.docs`` writes the pages of docs/ that follow from configuration and code.

docs/targets.md lists what Snakemake makes at each scale. Its last part has a section for each
dataset that replaces another at scale laptop: which dataset it replaces in which paper, the
docstring of its code, and eight of its images. docs/equations/ has a page for each paper (see
`tools.equations`). `tools.gpu_page` writes docs/gpu.md, and `tools.stand_ins_page` writes
docs/stand-ins.md. Only papers with published results at scale laptop are documented. A test fails
if a committed page differs from the page that this command would write.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from replication.config.datasets import DatasetInfo
from replication.config.functions import import_function
from replication.config.settings import known_scales
from replication.images.opening import build
from replication.plan.catalog import Catalog, load_catalog
from replication.pricing.estimate import Estimate
from replication.pricing.speed import costs_on
from replication.records.nodes import RenderingNode
from replication.report.ledger import published_folder, published_papers, read_published
from replication.report.results import cells_of
from replication.report.tables import markdown_escape, pipe_table
from tools import equations, gpu_page, stand_ins_page
from vitrail.errors import exit_on_error

PAGE = Path("docs") / "targets.md"
PICTURES = Path("docs") / "stand-ins"
ABOUT_TARGETS = """\
# Tables and figures that can be made, and stand-ins

What `snakemake TARGET` makes at scale laptop. Other targets are `all`, `tables`, `figures`, the
name of each paper, `proofs` (what holds for any weights, at full size, with negative controls) and
`benchmarks` (speed, memory and counts, without data or training). `tableN` and `figN` alone mean
those of the lead paper (`lead_paper` in `configs/default.yaml`). "Ours" means that the paper has no
such artifact.

The last column is about scale small (`--config scale=small`): "published" if the published results
of that scale contain the artifact ("in part" if a number that the paper prints was not run),
otherwise the hours of one CPU core that it takes, as `vitrail plan TARGET --scale small` estimates
them from published speeds or FLOPs. Models that several artifacts share are counted in each.
Searches of learning rates, benchmarks, and measures that do not declare their forward passes are
not counted ("not priced" if there is nothing else). A dash means that scale small does not make it.
"""
ABOUT_ELSEWHERE = """\
## Made at other scales

These need real images, published weights or several seeds, so scale laptop does not make them. Some
need `--config extensions=true`. The scales in brackets can make them. `cross_table` (full) puts all
families through the tests of all papers ([its columns](audit.md#all-families-in-one-table)).
"""
ABOUT_STAND_INS = """\
## Stand-ins of scale laptop

At scale laptop a stand-in replaces each dataset of the papers. It is a small dataset that is
composed, from a fixed seed, of two things that scikit-learn bundles: 1,797 scans of handwritten
digits (8x8 pixels) and two photographs (640x427). Labels are exact. By construction, a stand-in has
the property that the paper's claims are about. Its numbers are not the paper's: a verdict on a
stand-in is about the stand-in and the small models that are trained on it.

Each picture shows eight test images.
"""
SAMPLES = 8
SIDE = 96  # of a shown image, in pixels
GAP = 6


def documented(root: Path = Path()) -> Catalog:
    """Return the catalogue of laptop scale with only the papers that have published results.

    So a new paper changes no page before its results are published.

    Raises:
        VitrailError: as `load_catalog` and `published_papers` do.
    """
    catalog = load_catalog(root, scale="laptop")
    catalog.papers = {name: catalog.papers[name] for name in published_papers(catalog)}
    return catalog


def stand_ins(catalog: Catalog) -> dict[str, dict[str, list[str]]]:
    """Return each stand-in with the datasets that it replaces, and for each of these the papers."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, paper in catalog.papers.items():
        for here, replaced in paper.stands_for.items():
            for printed in replaced:
                found[here][printed].append(name)
    return {name: dict(found[name]) for name in catalog.datasets if name in found}


def targets_page(catalog: Catalog) -> str:
    """Return the list of targets as Markdown."""
    parts = [ABOUT_TARGETS.rstrip()]
    at_small = standing(
        # The runs of a checkout do not count, so that every checkout writes the same page.
        load_catalog(catalog.root, scale="small", runs_root="no-runs")
    )
    for name, paper in catalog.papers.items():
        rows = [
            [
                f"`{artifact.target}`",
                markdown_escape(artifact.title),
                markdown_escape(artifact.source),
                at_small.get(artifact.target, "-"),
            ]
            for artifact in paper.artifacts.values()
        ]
        table = pipe_table(
            ["target", "what it is", "in the paper", "hours at small"], rows, numbers=False
        )
        parts += [f"## {name}: {paper.info.title}", table]
    parts += [ABOUT_ELSEWHERE.rstrip(), made_elsewhere(catalog), *stand_in_sections(catalog)]
    return "\n\n".join(parts) + "\n"


def standing(catalog: Catalog) -> dict[str, str]:
    """Return for each target of a scale "published" (in part), or its hours on one device."""
    folder = published_folder(catalog)
    nodes = (record.node for record in read_published(folder).values())
    published = {node.artifact.target for node in nodes if isinstance(node, RenderingNode)}
    _, costs = costs_on(catalog, None)
    found: dict[str, str] = {}
    for paper in catalog.papers.values():
        for artifact in paper.artifacts.values():
            if artifact.target in published:
                cells = cells_of(artifact, folder)
                printed = pd.to_numeric(cells["paper_value"], errors="coerce").notna()
                lacks = (cells["verdict"] == "not_run") & printed
                found[artifact.target] = "published in part" if lacks.any() else "published"
            else:
                estimate = Estimate(catalog, [artifact], costs, ours=())
                work = estimate.training + estimate.evaluation
                hours = told_hours(work.hours["all"])
                found[artifact.target] = hours if work.nodes else "not priced"
    return found


def told_hours(bounds: list[float]) -> str:
    """Return hours between two bounds, in tenths; "minutes" if the upper one rounds to 0.0."""
    low, high = (f"{bound:.1f}" for bound in bounds)
    if low == "0.0":
        return "minutes" if high == "0.0" else f"up to {high}"
    return low if low == high else f"{low} to {high}"


def made_elsewhere(catalog: Catalog) -> str:
    """Return the list of targets that only other scales than the catalogue's make, with these."""
    scales: dict[str, list[str]] = defaultdict(list)
    titles: dict[str, str] = {}
    for scale in known_scales(catalog.root):
        other = load_catalog(catalog.root, scale=scale, extensions=True)
        for name in (name for name in catalog.papers if name in other.papers):
            for artifact in other.papers[name].artifacts.values():
                scales[artifact.target].append(scale)
                titles[artifact.target] = artifact.title
    lines = [
        f"- `{target}`: {markdown_escape(titles[target])} ({', '.join(found)})"
        for target, found in scales.items()
        if catalog.scale.name not in found
    ]
    return "\n".join(lines)


def stand_in_sections(catalog: Catalog) -> Iterator[str]:
    """Yield the sections of the stand-ins as Markdown."""
    yield ABOUT_STAND_INS.rstrip()
    for name, used in stand_ins(catalog).items():
        info = catalog.datasets[name]
        uses = "; ".join(
            f"{catalog.datasets[printed].title} ({', '.join(papers)})"
            for printed, papers in used.items()
        )
        yield f"### `{name}`"
        yield (
            f"Stands in for {uses}. {info.classes} classes, {info.train_images:,} training and "
            f"{info.val_images:,} test images."
        )
        yield description(info, catalog.datasets)
        yield f"![eight images of {name}]({PICTURES.name}/{name}.png)"


def description(info: DatasetInfo, datasets: Mapping[str, DatasetInfo]) -> str:
    """Return the docstring of the function that opens a dataset.

    For a `partial`, return the name of the function and the arguments. Functions that open other
    datasets are replaced by the names of these datasets.
    """
    names = {other.loader.rpartition(":")[2]: name for name, other in datasets.items()}
    loader = import_function(info.loader, "configs/datasets.yaml")
    text = inspect.getdoc(loader) or ""
    if isinstance(loader, partial):
        arguments = ", ".join(f"`{name}={value!r}`" for name, value in loader.keywords.items())
        text = f"As `{loader.func.__name__}`, with {arguments}."
    return re.sub(r"`(\w+)`", lambda quoted: f"`{names.get(quoted[1], quoted[1])}`", text)


def samples(info: DatasetInfo) -> Iterator[Image.Image]:
    """Yield eight test images without masks: the first of each class, then others in order."""
    images: Any = build(info, "val", Path())
    pairs = [images[index] for index in range(len(images))]
    labels = [label for _, label in pairs if isinstance(label, int)]
    first = [labels.index(label) for label in sorted(set(labels))]
    order = dict.fromkeys([*first, *range(len(pairs))])
    for index in [*order][:SAMPLES]:
        yield pairs[index][0].convert("RGB")


def picture(info: DatasetInfo) -> Image.Image:
    """Return eight images side by side, each pixel enlarged to a square."""
    shown = []
    for image in samples(info):
        factor = max(1, SIDE // image.height)
        shown.append(
            image.resize((factor * image.width, factor * image.height), Image.Resampling.NEAREST)
        )
    width = sum(image.width for image in shown) + GAP * (len(shown) - 1)
    sheet = Image.new("RGB", (width, max(image.height for image in shown)), "white")
    left = 0
    for image in shown:
        sheet.paste(image, (left, 0))
        left += image.width + GAP
    return sheet


def main() -> None:
    """Write the pages and pictures; delete pictures of stand-ins that no longer exist."""
    catalog = documented()
    PICTURES.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(targets_page(catalog), encoding="utf-8")
    for module in (gpu_page, stand_ins_page):
        module.PAGE.write_text(module.page(), encoding="utf-8")
    for path, page in equations.pages(catalog).items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(page, encoding="utf-8")
    wanted = {PICTURES / f"{name}.png" for name in stand_ins(catalog)}
    for path in wanted:
        picture(catalog.datasets[path.stem]).save(path, optimize=True)
    for path in set(PICTURES.glob("*.png")) - wanted:
        path.unlink()


if __name__ == "__main__":
    exit_on_error(main)
