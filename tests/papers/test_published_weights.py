"""Tables of published weights are rehearsed on miniatures, from made-up files in their layout."""

import json
import math
import re
import shutil

import pytest
import timm
import torch
from safetensors.torch import save_file

import vitrail.segmentation  # noqa: F401  # isort: skip

from replication.claims.comparison import read_cells
from replication.cli.steps import train
from replication.config.datasets import load_registry, miniature_name
from replication.config.python_source import config_files
from replication.config.recipes.segmentation import SegmentationRecipe
from replication.config.schema import merge, read_mapping
from replication.config.settings import load_settings
from replication.config.weights import (
    REGISTRY,
    PublishedWeights,
    find_weights,
    load_weights_registry,
)
from replication.datasets.miniature import write
from replication.datasets.published_weights import fetch
from replication.jobs.measure import take
from replication.papers.octic.dinov2 import network
from replication.plan.catalog import Catalog
from replication.records.records import complete, read_record
from replication.report.tables import read_measured, render
from replication.training.segmentation.config import build_model
from tests.checkout import ROOT
from vitrail.files import sha256
from vitrail.octic.checkpoint import to_published
from vitrail.weights_file import note_of, read_weights

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Default ``avg_non_ignore``"),  # mmseg's own
]
DEIT = "deit_small_patch16_224.fb_in1k"
SMALL = {"embed_dim": 12, "depth": 4, "num_heads": 2}
AROUND = {
    "neck": {"in_channels": [12] * 4, "out_channels": 12},
    "decode_head": {"in_channels": [12] * 4, "channels": 8},
    "auxiliary_head": {"in_channels": 12, "channels": 8},
}
SMALL_IMAGES = [  # Cityscapes' own are of 2,048 x 1,024 pixels
    {"type": "LoadImageFromFile"},
    {"type": "Resize", "scale": [256, 128], "keep_ratio": True},
    {"type": "LoadAnnotations"},
    {"type": "PackSegInputs"},
]
SEGMENTER = {"args": {**AROUND, "backbone": {**SMALL, "out_indices": [0, 1, 2, 3]}}}
THEIRS = "mmseg::vit/vit_deit-s16_mln_upernet_8xb2-160k_ade20k-512x512.py"


PUBLISHED = ("vit-l", "i8-l", "h8-l")


@pytest.fixture
def catalog(tmp_path):
    """Full scale on miniatures, whose small models start from weights that are published."""
    ade20k = next(name for name in load_weights_registry(ROOT / REGISTRY) if "upernet" in name)
    url = find_weights(ade20k, load_weights_registry(ROOT / REGISTRY)).url[0]
    tested = {"dataset": {"pipeline": SMALL_IMAGES}}
    recipes = {
        "deit_s_*": {"schedule": {"steps": 2}, "batch": {"size": 2}},
        "augreg-*": {"model": {"pretrained": True, "args": {"depth": 1}}},
        "later-*": {
            "model": {"pretrained": True, "args": {"depth": 1, "embed_dim": 48, "num_heads": 4}}
        },
        "deit_s_upernet-*": {"model": {**SEGMENTER, "pretrained": DEIT}},
        "deit_s_upernet-cityscapes": {
            "options": {"val_dataloader": tested, "test_dataloader": tested}
        },
        "deit_s_upernet-ade20k": {"model": {"pretrained": url}, "schedule": {"steps": 0}},
    }
    folders = {f"{root}_root": str(tmp_path / root) for root in ("data", "runs", "results")}
    skipped = {"args": {"skipped": [352, 416, 480, 544, 608, 672, 736, 800, 864]}}
    measures = {"rescaling, antialiased": skipped, "larger": {"args": {"skipped": [416, 544, 864]}}}
    variance = {"recipes": recipes, "measures": measures}
    configs = tmp_path / "configs"
    shutil.copytree(ROOT / "configs", configs)
    registry = load_weights_registry(ROOT / REGISTRY)
    files = dict(zip(PUBLISHED, (n for n in registry if "dinov2_large" in n), strict=True))
    teachers = {
        f"dinov2-{n}-published": {"model": {"pretrained": file}} for n, file in files.items()
    }
    others = ["dinov2-*-h-published, dinov2-vit-l-published, dinov2-i8-l-published"]
    # A miniature has all classes of its dataset: 52 classifiers of 10,000 are too many.
    probes = {
        "*knn, *linear, ade20k, voc2012, blood_cells": {"args": {"precision": "fp32"}},
        "*linear": {"args": {"rates": [1e-3, 0.1], "steps": 2, "batch_size": 2}},
        "ade20k, voc2012": {"args": {"iterations": 2}},
        "knn": {"args": {"turned": 1}},
    }
    shallow = {"??-?-published, dinov2-*": {"model": {"args": {"depth": 2}}}}
    octic = {"recipes": shallow | teachers, "without": others, "measures": probes}
    datasets = load_registry(configs / "datasets.yaml")
    miniatures = {
        name: miniature_name(name) for name in datasets if miniature_name(name) in datasets
    }
    everywhere = {"device": "cpu", "workers": 0, "extensions": True, "datasets": miniatures}
    for folder, change in (
        ("", everywhere),
        ("papers/variance", variance),
        ("papers/octic", octic),
    ):
        scales = configs / folder / "scales"
        full = read_mapping(scales / "full.yaml")
        (scales / "published.yaml").write_text(json.dumps(merge(full, change)))  # JSON is YAML
    return Catalog(tmp_path, load_settings(tmp_path, {"scale": "published", **folders}))


def publish(catalog, name, state, suffix=".safetensors", key="state_dict"):
    """Fetch a made-up file of these weights, as `vitrail fetch-weights` does with the real one."""
    file = catalog.weights_of(name)
    # Digits in the name of the real file begin its digest.
    served = file.parent.parent / "published" / file.stem / f"made{suffix}"
    served.parent.mkdir(parents=True, exist_ok=True)
    if suffix == ".safetensors":
        save_file(state, served)
    else:
        torch.save({key: state, "meta": {}}, served)
    entry = {"name": file.stem, "url": [served.as_uri()], "licence": "none"}
    file.parent.mkdir(exist_ok=True)
    fetch(PublishedWeights.model_validate(entry), file)
    assert sha256(served) in note_of(file).read_text()


def write_images(catalog, info):
    folder = catalog.data_root / info.folder
    if not folder.exists():
        write(info, catalog.data_root, folder)


def copy(catalog, run):
    """Train a run on the miniature of its dataset, or copy its weights if it has no steps."""
    write_images(catalog, run.dataset)
    node = catalog.training_node(run)
    assert node.published is not None
    complete(node, train(node))


def rehearse(catalog, paper, name):
    """Do every step of a target on miniatures; return the cells of its table."""
    artifact = catalog.paper(paper).artifacts[name]
    for run in catalog.runs_of(artifact):
        copy(catalog, run)
    for measurement in catalog.measurements_of(artifact):
        node = catalog.measurement_node(measurement)
        for info in measurement.datasets:
            write_images(catalog, info)
        complete(node, take(node))
    output = catalog.rendering(artifact)
    render(artifact, output.parent, read_measured(artifact))
    return read_cells(output.with_suffix(".csv"))


def test_table_3_of_variance_is_evaluated_with_augregs_weights(catalog):
    runs = catalog.runs_of(catalog.paper("variance").artifacts["table3"])
    for run in runs:
        name = run.recipe.model.name
        model = timm.create_model(name, depth=1, num_classes=1000)
        publish(catalog, name, model.state_dict())
    cells = rehearse(catalog, "variance", "table3")
    for run in runs:  # bit by bit, and nothing is left as it was drawn
        published = read_weights(catalog.weights_of(run.recipe.model.name))
        kept = read_weights(run.weights)
        assert published.keys() == kept.keys()
        assert all(torch.equal(kept[name], weight) for name, weight in published.items())
    judged = cells[cells["row"].isin(["224²", "288²"])]
    assert len(judged) == 2 * 18
    assert judged["measured"].map(math.isfinite).all()


def test_later_models_of_variance_are_evaluated_as_timm_publishes_them(catalog):
    runs = catalog.runs_of(catalog.paper("variance").artifacts["others"])
    for run in runs:
        recipe = run.recipe
        model = timm.create_model(recipe.model.name, **recipe.model.args)
        given = timm.get_pretrained_cfg(recipe.model.name).to_dict()
        assert recipe.data.image_size == given["input_size"][-1]
        assert recipe.data.crop_pct == given["crop_pct"]
        assert (recipe.data.normalization == "inception") == (given["mean"] == (0.5, 0.5, 0.5))
        assert recipe.data.interpolation == given["interpolation"]
        publish(catalog, recipe.model.name, model.state_dict())
    cells = rehearse(catalog, "variance", "others")
    judged = cells[cells["row"].isin(["224²", "288²"])]
    assert len(judged) == 2 * 10
    assert judged["measured"].map(math.isfinite).all()


def test_table_4_of_variance_is_evaluated_with_mmsegs_segmenter_and_trained_from_deits(catalog):
    torch.manual_seed(0)
    deit = timm.create_model(DEIT, **SMALL, num_classes=1000)
    publish(catalog, DEIT, deit.state_dict())
    whole = catalog.paper("variance").run("deit_s_upernet-ade20k").recipe
    backbone = {"embed_dims": 12, "num_layers": 4, "num_heads": 2}
    model = {"name": THEIRS, "files": config_files(THEIRS, ROOT)}
    model["args"] = {**AROUND, "backbone": {**backbone, "out_indices": [0, 1, 2, 3]}}
    plain = {"data": {"dataset": "ade20k"}, "schedule": {"steps": 0}, "batch": {"size": 2}}
    theirs = build_model(SegmentationRecipe.model_validate({"model": model, **plain}), 150)
    publish(catalog, whole.model.published, theirs.state_dict(), ".pth")
    cells = rehearse(catalog, "variance", "table4")
    kept = read_weights(catalog.paper("variance").run("deit_s_upernet-ade20k").weights)
    for name, weight in theirs.decode_head.state_dict().items():
        assert torch.equal(kept[f"decode_head.{name}"], weight)
    qkv = theirs.backbone.layers[3].attn.attn.in_proj_weight
    assert torch.equal(kept["backbone.model.blocks.3.attn.qkv.weight"], qkv)
    assert len(cells) == 9 * 7
    assert cells["measured"].map(math.isfinite).all()


def in_dinov2s_layout(model):
    """A teacher as DINOv2's code keeps it: blocks in chunks of dense models, heads beside it."""
    if hasattr(model, "invariantisation"):
        state = to_published(model)
        for number in "12":
            state = {
                re.sub(rf"\.gamma_{number}$", f".ls{number}.gamma", name).replace(
                    f".gamma_{number}.", f".ls{number}."
                ): value
                for name, value in state.items()
            }
    else:
        state = {
            re.sub(r"^blocks\.(\d+)", r"blocks.0.\1", name): value.clone()
            for name, value in model.state_dict().items()
        }
        state["mask_token"] = state["mask_token"][0]  # (1, C)
    return {f"backbone.{name}": value for name, value in state.items()} | {
        "dino_head.mlp.0.bias": torch.zeros(3)
    }


def test_tables_3_and_7_of_octic_are_evaluated_with_the_teachers_that_the_authors_publish(catalog):
    torch.manual_seed(0)
    paper, models = catalog.paper("octic"), {}
    for name in PUBLISHED:
        recipe = paper.run(f"dinov2-{name}-published").recipe
        assert recipe.schedule.steps == 0
        models[name] = network.build_model(recipe, 0)
        for parameter in models[name].parameters():
            torch.nn.init.normal_(parameter, std=0.02)
        publish(catalog, recipe.model.published, in_dinov2s_layout(models[name]), ".pth", "teacher")
    cells = rehearse(catalog, "octic", "published_dinov2")
    for name, model in models.items():
        run = paper.run(f"dinov2-{name}-published")
        judged = run in paper.runs_of(paper.artifacts["published_dinov2"])
        if not judged:  # the probes of one model take a minute
            copy(catalog, run)
        kept = read_weights(run.weights)
        for key, weight in model.state_dict().items():
            assert torch.equal(kept[key], weight), (name, key)
        assert judged == (name == "h8-l")
    knn = catalog.measurement_node(paper.measurement("knn", "dinov2-h8-l-published"))
    assert read_record(knn.output).outcome["values"]["rise"] == 0  # nothing was trained
    judged = cells[cells["row"] == "H8(ViT-L/16)"]
    assert len(judged) == len(paper.artifacts["published_dinov2"].columns)
    assert judged["measured"].map(math.isfinite).all()
