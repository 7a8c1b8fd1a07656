"""Build a segmenter from a recipe: load its mmengine configuration and apply its changes.

What our graph decides (data root, classes, steps, batch) is set here, so that a configuration may
be written for MMSegmentation's own tools and still be trained by our rules.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.runner import Runner
from mmseg.registry import DATASETS, MODELS
from torch import nn

from replication.images.opening import TUNING, Split, members
from replication.training.segmentation import (  # noqa: F401 - register types
    camvid,
    sampling,
    stand_in_datasets,
)
from replication.training.segmentation.stand_in_datasets import composed_root
from vitrail.errors import VitrailError, did_you_mean, first_line, require_known
from vitrail.seeding import seed_everything
from vitrail.segmentation.weights import load_segmenter
from vitrail.weights_file import require_as_noted

if TYPE_CHECKING:
    from replication.config.datasets import DatasetInfo
    from replication.config.recipes.segmentation import SegmentationRecipe, Segmenter
    from replication.training.dispatch import TrainingRun

Fit = Literal["pad", "resize"]
SCOPE = "mmseg"
RESIZING = "ResizeToMultiple"
LOADERS: dict[str, Split] = {
    "train_dataloader": "train",
    "val_dataloader": "val",
    "test_dataloader": "val",
}
SET_HERE = {
    "train_cfg": "schedule.steps",
    "work_dir": "runs_root",
    "randomness": "the number of seeds",
    "launcher": "the processes that are started",
    "load_from": "model.pretrained",
}


def load_config(recipe: SegmentationRecipe, classes: int, synchronised: bool = False) -> Config:
    """Load the recipe's configuration; its `options`, then its `model.args`, override values.

    Published weights that the configuration names are removed. SyncBN, which needs GPUs, becomes BN
    unless `synchronised`. Raises VitrailError if the configuration cannot be read, or the recipe
    does not fit it.
    """
    try:
        config = _as_written(recipe.model)
        _refuse_unknown(recipe.options, config)
        for values in (recipe.options, {"model": recipe.model.args}):
            config.merge_from_dict(_with_tuples(values))
        for name in ("decode_head", "auxiliary_head"):
            for head in _listed(config.model.get(name)):
                head.num_classes = classes
    except VitrailError:
        raise
    except Exception as error:  # a configuration is code: it may raise anything
        raise VitrailError(
            f"configuration '{recipe.model.name}' cannot be used ({first_line(error)}): correct "
            "the file, or model.args and options of the recipe"
        ) from None
    config.model.pretrained = None
    config.model.backbone.init_cfg = None
    if not synchronised:
        _replace_type(config.model, "SyncBN", "BN")
    return config


def _as_written(model: Segmenter) -> Config:
    """Load a configuration unchanged: from the files in the recipe, else MMSegmentation's own."""
    if not model.files:
        # Not mmengine.hub.get_config, which would install packages.
        return Config.fromfile(Config._get_cfg_path(model.name, "")[0])
    with TemporaryDirectory() as folder:
        for name, code in model.files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code, encoding="utf-8")
        return Config.fromfile(Path(folder, f"{model.name}.py"))


def build_model(recipe: SegmentationRecipe, classes: int) -> nn.Module:
    """Make the recipe's segmenter without published weights.

    Called with images (B, 3, H, W) it returns logits (B, classes, h, w).

    Raises:
        VitrailError: there is no such configuration, or the model refuses an argument.
    """
    config = load_config(recipe, classes)
    try:
        # On the CPU: mmseg's Swin reads values of tensors, which the meta device does not have.
        with DefaultScope.overwrite_default_scope(SCOPE), torch.device("cpu"):
            model: nn.Module = MODELS.build(config.model)
    except Exception as error:  # a model may raise anything about its arguments
        raise VitrailError(
            f"configuration '{recipe.model.name}' refuses model.args {recipe.model.args} "
            f"({first_line(error)}): correct model.args"
        ) from None
    return model.to(torch.get_default_device())


def initial_segmenter(run: TrainingRun[SegmentationRecipe]) -> nn.Module:
    """Make the segmenter of a recipe with zero steps, with published weights of the whole, if any.

    Raises VitrailError as `build_model`, or if the weights are missing, changed, or of another
    segmenter.
    """
    initial = _published(run)
    seed_everything("initial weights", run.seed)
    model = build_model(run.recipe, run.dataset.classes)
    if initial is not None:
        load_segmenter(model, initial)
    return model


def _published(run: TrainingRun[SegmentationRecipe]) -> Path | None:
    """Return the file of published weights that a run starts from, or None.

    Raises VitrailError if the recipe names weights and none are given, or the file has changed.
    """
    if run.initial is not None:
        require_as_noted(run.initial)
    elif run.recipe.model.pretrained:
        raise VitrailError(
            f"the recipe starts from the published weights {run.recipe.model.pretrained} and was "
            "given none: pass their file as `initial`"
        )
    return run.initial


def image_shape(recipe: SegmentationRecipe) -> tuple[int, int, int]:
    """Return (channels, height, width) of the crops on which a recipe trains."""
    height, width = load_config(recipe, classes=1).model.data_preprocessor.size
    return 3, height, width


def training_config(run: TrainingRun[SegmentationRecipe], world: int, on_gpu: bool) -> Config:
    """Make the configuration for mmengine's Runner, to train in one of `world` processes.

    Raises VitrailError as `load_config`; or if the batch cannot be shared equally by the processes,
    published weights are missing or changed, or the configuration accumulates gradients.
    """
    recipe, share = run.recipe, run.recipe.batch.share(world)
    initial = _published(run)
    config = load_config(recipe, run.dataset.classes, synchronised=world > 1 and on_gpu)
    if config.optim_wrapper.get("accumulative_counts", 1) != 1:
        raise VitrailError(
            "optim_wrapper.accumulative_counts is "
            f"{config.optim_wrapper.accumulative_counts}, and a resumed training would lose what "
            "is accumulated: set it to 1 and lower batch.size, or start more processes"
        )
    _place_data(config, run.dataset, run.data_root, run.seed)
    if initial is not None:
        config.model.backbone.init_cfg = {"type": "Pretrained", "checkpoint": str(initial)}
    config.model_wrapper_cfg = {
        "type": "MMDistributedDataParallel",
        "broadcast_buffers": False,
        "device_ids": None,  # use the device of the parameters; the default fails on a CPU
    }
    _stretch(config, recipe.schedule.steps)
    _count_samples(config, run.seed, share, run.options.workers)
    for split in ("val", "test"):  # evaluation is done by other nodes
        for part in ("cfg", "dataloader", "evaluator"):
            config[f"{split}_{part}"] = None
    config.default_hooks = {
        "timer": {"type": "IterTimerHook"},
        "param_scheduler": {"type": "ParamSchedulerHook"},
        # None removes mmengine's default hook; runtime_info would wait for the loss of every step.
        **dict.fromkeys(("runtime_info", "logger", "checkpoint", "sampler_seed")),
    }
    config.visualizer = None
    config.randomness = {"seed": run.seed}
    config.launcher = "pytorch" if world > 1 else "none"
    config.log_level = "ERROR"  # `TrainingLog` shows progress
    return config


def test_config(
    recipe: SegmentationRecipe, info: DatasetInfo, data_root: Path, seed: int
) -> Config:
    """Make the configuration for evaluation, by our measures and by mmseg's tools.

    A stand-in dataset is composed by `seed`. Raises VitrailError as `load_config`.
    """
    config = load_config(recipe, info.classes)
    _place_data(config, info, data_root, seed)
    needed = [*config.get("custom_imports", {}).get("imports", []), "vitrail.segmentation"]
    registering = DATASETS.get(config.test_dataloader.dataset.type).__module__
    if registering.startswith("replication."):
        needed.append(registering)
    config.custom_imports = {"imports": list(dict.fromkeys(needed))}
    # mmseg's inference and its --tta read these two, not those of the loader and of the model.
    config.test_pipeline = config.test_dataloader.dataset.pipeline
    config.data_preprocessor = config.model.data_preprocessor
    return config


def refit(config: Config, fit: Fit) -> None:
    """Change how test images are brought to a multiple of the divisor of `config`, in place.

    With ``pad`` they are padded below and to the right; with ``resize`` they are enlarged; each
    side to its next multiple. A configuration without a divisor is not changed.

    Raises:
        VitrailError: there is no such `fit`.
    """
    require_known("fit", fit, get_args(Fit))
    pipeline, preprocessor = config.test_dataloader.dataset.pipeline, config.model.data_preprocessor
    types = [step.type for step in pipeline]
    if fit == "pad" and RESIZING in types:
        step = pipeline.pop(types.index(RESIZING))
        preprocessor.test_cfg = {"size_divisor": step.size_divisor}
    divisor = (preprocessor.get("test_cfg") or {}).get("size_divisor")
    if fit == "resize" and divisor:
        pipeline.insert(types.index("LoadAnnotations"), {"type": RESIZING, "size_divisor": divisor})
        preprocessor.test_cfg = None


def _refuse_unknown(options: dict[str, Any], config: Config) -> None:
    """Raise VitrailError for an option without effect, or one that the graph sets.

    An option has an effect only if the configuration or mmengine's Runner has its name.
    """
    known = {*config, *inspect.signature(Runner).parameters}
    for key in options:
        if key not in known:
            raise VitrailError(f"options.{key} is unknown{did_you_mean(key, known)}")
        if key in SET_HERE:
            raise VitrailError(
                f"options.{key} is for the graph to set: remove it, or use {SET_HERE[key]}"
            )


def _with_tuples(value: Any) -> Any:
    """Turn lists of two numbers into tuples, which YAML lacks and MMSegmentation needs as sizes."""
    if isinstance(value, dict):
        return {key: _with_tuples(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) == 2 and all(isinstance(item, int | float) for item in value):
        return tuple(value)
    return [_with_tuples(item) for item in value]


def _listed(value: Any) -> list[Any]:
    """Return a configuration's value as a list: a list itself, one item, or nothing for None."""
    return value if isinstance(value, list) else [value] if value else []


def _replace_type(node: Any, old: str, new: str) -> None:
    """Replace the value `old` of ``type`` by `new` in a configuration and all its parts."""
    if isinstance(node, dict) and node.get("type") == old:
        node["type"] = new
    if isinstance(node, dict | list | tuple):
        for value in node.values() if isinstance(node, dict) else node:
            _replace_type(value, old, new)


def _place_data(config: Config, info: DatasetInfo, data_root: Path, seed: int) -> None:
    """Let every loader read the dataset `info`, whichever one the configuration names."""
    composed = info.source == "bundled"
    folder = composed_root(info, seed) if composed else str(data_root / info.folder)
    if info.segmentation is None:
        raise VitrailError(
            f"dataset '{info.name}' has no masks: name one with 'segmentation' in "
            "configs/datasets.yaml"
        )
    for loader, split in LOADERS.items():
        dataset = config[loader].dataset
        dataset.type = info.segmentation.type
        dataset.data_root = folder
        files, dataset.indices = split, None
        if info.part == "tuning" and not composed:
            images = range(info.train_images + info.val_images)
            files, dataset.indices = "train", members(images, (), TUNING[split])
        dataset.data_prefix = getattr(info.segmentation, files).model_dump()


def _stretch(config: Config, steps: int) -> None:
    """Scale the schedule of the learning rate from the configuration's length to `steps`."""
    ratio = steps / config.train_cfg.max_iters
    config.train_cfg = {"type": "IterBasedTrainLoop", "max_iters": steps}
    for scheduler in _listed(config.get("param_scheduler")):
        if scheduler.get("by_epoch", True) or not {"begin", "end"} <= scheduler.keys():
            raise VitrailError(
                f"param_scheduler {scheduler.type} cannot be stretched to {steps} steps: give it "
                "by_epoch=False, begin and end"
            )
        begin = round(scheduler.begin * ratio)
        # mmengine's warm-up of one step would never end.
        scheduler.update(begin=begin, end=max(round(scheduler.end * ratio), begin + 2))


def _count_samples(config: Config, seed: int, batch: int, workers: int) -> None:
    """Let the training loader draw samples by number, so that a resumed run draws the same ones."""
    loader = config.train_dataloader
    config.train_dataloader = {
        **loader,
        "batch_size": batch,
        "num_workers": workers,
        "persistent_workers": False,
        "sampler": {"type": "CountedSampler", "batch_size": batch},
        "worker_init_fn": {"type": "prepare_shielded_worker"},
        "dataset": {"type": "CountedDataset", "dataset": loader.dataset, "seed": seed},
    }
