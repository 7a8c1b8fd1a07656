"""From a recipe to a model, and a model's weights to and from disk.

Weights are safetensors with the recipe's hash and the seed in their metadata: a file that strayed
into another run's folder is refused. A receipt names the weights that the seeds of a run were
trained to, by their SHA-256; what stands on a run takes only those.
"""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import timm
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

import vitrail.models  # noqa: F401
from vitrail.errors import VitrailError, did_you_mean, first_line, require_known
from vitrail.files import atomic_path, sha256, write_atomically
from vitrail.plan.source import HUBS
from vitrail.training.engine import builder_of
from vitrail.training.weights_file import read_weights, require_as_noted

if TYPE_CHECKING:
    from vitrail.plan.jobs import TrainedRun, TrainingJob
    from vitrail.plan.recipe import AnyRecipe, Recipe, SelfSupervisionRecipe


Precision = Literal["fp32", "bf16", "fp16"]
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(device: str, precision: Precision) -> torch.autocast:
    """Return the context in which a model runs in `precision`, in training and when measured.

    Raises:
        VitrailError: there is no such precision.
    """
    require_known("precision", precision, get_args(Precision))
    half = HALF.get(precision)
    return torch.autocast(torch.device(device).type, half, enabled=half is not None)


def build_model(recipe: Recipe, classes: int) -> nn.Module:
    """Make the recipe's model with a head for `classes` classes, without pretrained weights.

    Its initial weights come from torch's global generator. Raises VitrailError if timm does not
    know the name, or the model refuses an argument.
    """
    return create(recipe, classes)


def image_shape(recipe: Recipe) -> tuple[int, int, int]:
    """(channels, height, width) of an image as the model sees it in training."""
    return 3, recipe.data.image_size, recipe.data.image_size


def build_pretrained(recipe: Recipe, classes: int, file: Path | None) -> nn.Module:
    """Make the recipe's model with published weights; a head of another size stays initial.

    `file` holds them as `vitrail.training.weights` writes them, None is timm's own store. Raises
    VitrailError as `build_model`, or if the weights cannot be read, do not fit, or are not those
    that were fetched.
    """
    if file is None:
        return create(recipe, classes, pretrained=True)
    require_as_noted(file)
    overlay = {"state_dict": read_weights(file)}
    return create(recipe, classes, pretrained=True, pretrained_cfg_overlay=overlay)


def build_from(recipe: Recipe | SelfSupervisionRecipe, classes: int, file: Path) -> nn.Module:
    """Make the recipe's model with all the weights of another run, as `save_weights` writes them.

    Raises VitrailError as `build_model`, or if the weights are of another architecture.
    """
    model = builder_of(recipe).build_model(recipe, classes)
    remedy = "correct model.weights_from, or give both recipes models of one shape"
    _fill(model, file, recipe, remedy)
    return model


def create(recipe: Recipe | SelfSupervisionRecipe, classes: int, **options: Any) -> nn.Module:
    """Make the recipe's model with more `options` of timm's; errors as `build_pretrained`."""
    spec = recipe.model
    require_model(spec.name)
    try:
        model: nn.Module = timm.create_model(spec.name, num_classes=classes, **spec.args, **options)
    except OSError as error:  # huggingface_hub's own errors are OSErrors
        raise VitrailError(
            f"the pretrained weights of '{spec.name}' are neither here nor can they be fetched "
            f"({first_line(error)}): where there is a network run this "
            "once with HF_HOME on storage that this machine sees, then set HF_HOME and "
            "HF_HUB_OFFLINE=1 here"
        ) from None
    except Exception as error:  # a model may raise anything about its arguments
        raise VitrailError(
            f"model '{spec.name}' refuses args {spec.args} with pretrained={spec.pretrained} "
            f"({first_line(error)}): correct model.args, model.name's tag or model.pretrained"
        ) from None
    if spec.drop_path_rule == "constant":
        _level_drop_path(model, recipe)
    return model


def _level_drop_path(model: nn.Module, recipe: Recipe | SelfSupervisionRecipe) -> None:
    """Give every residual branch the stochastic depth of the last block of its kind (DeiT III)."""
    rate = recipe.model.args.get("drop_path_rate", 0.0)
    if not rate:
        return
    blocks = [module for module in model.modules() if hasattr(module, "drop_path1")]
    last = {type(block): block for block in blocks}
    if not blocks or any(isinstance(block.drop_path1, nn.Identity) for block in last.values()):
        raise VitrailError(
            f"model '{recipe.model.name}' has no drop_path1 and drop_path2 in its last block to "
            "repeat in all: set model.drop_path_rule to linear"
        )
    for block in blocks:
        for name in ("drop_path1", "drop_path2"):
            # timm leaves out the first block's, whose rate is 0.
            branch = copy.copy(getattr(last[type(block)], name))
            branch.drop_prob = rate
            setattr(block, name, branch)


def require_model(name: str) -> None:
    """Check that timm knows the model's name, or is told where to find it.

    Raises VitrailError if it does not; the closest name is suggested.
    """
    if not name.startswith(HUBS) and not timm.is_model(name):
        known = difflib.get_close_matches(name, timm.list_models(), n=5, cutoff=0)
        raise VitrailError(f"there is no model '{name}'{did_you_mean(name, known)}")


def check_image_size(
    model: nn.Module, recipe: Recipe | SelfSupervisionRecipe, device: torch.device
) -> None:
    """Pass one blank image of the recipe's size through the model, before anything is trained.

    Raises VitrailError if the model refuses that size.
    """
    size = recipe.data.image_size
    model.eval()
    try:
        with torch.no_grad():
            model(torch.zeros(1, 3, size, size, device=device))
    except (AssertionError, RuntimeError, ValueError, TypeError, IndexError) as error:
        raise VitrailError(
            f"model '{recipe.model.name}' with args {recipe.model.args} refuses images of {size} "
            f"pixels ({first_line(error)}): set model.args.img_size and data.image_size alike"
        ) from None


def save_weights(weights: Mapping[str, Tensor], path: Path, recipe: AnyRecipe, seed: int) -> None:
    """Write a state dict to `path`, all or nothing, with the run that it belongs to.

    Raises VitrailError if the file cannot be written.
    """
    # Clones, because safetensors refuses tensors that share memory (tied weights, views).
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in weights.items()}
    # One entry, because safetensors writes several in a random order: equal runs, equal files.
    owner = json.dumps({"recipe_hash": recipe.hash, "seed": seed})
    content = save(tensors, metadata={"run": owner})
    with atomic_path(path) as partial:
        partial.write_bytes(content)


def load_weights(model: nn.Module, path: Path, recipe: AnyRecipe) -> None:
    """Load a run's weights, in the folder of a seed in that of the recipe, into its model.

    Raises VitrailError if the file is missing, damaged, of another recipe or architecture.
    """
    require_recipe(path, recipe.hash)
    remedy = "the code of the model has changed since; delete the run folder and train again"
    _fill(model, path, recipe, remedy)


def require_recipe(path: Path, recipe_hash: str) -> None:
    """Refuse weights in a run's folder that are not there or not of its recipe.

    Raises:
        VitrailError: the file is missing, damaged, or of another recipe.
    """
    if not path.exists():
        # Snakemake goes by the receipts: with one there, it would not train again.
        raise VitrailError(
            f"{path} does not exist: delete {path.parent.parent}/trained-*.json if there is one, "
            "and start snakemake again to train this run"
        )
    owner = weights_owner(path)
    if owner.get("recipe_hash") != recipe_hash:
        raise VitrailError(
            f"{path} holds weights of recipe {owner.get('recipe_hash')}, not of recipe "
            f"{recipe_hash}: train again, or point to this recipe's run folder"
        )


def _fill(model: nn.Module, path: Path, recipe: AnyRecipe, remedy: str) -> None:
    try:
        model.load_state_dict(read_weights(path))
    except RuntimeError as error:
        # The first line only says of which class of modules; what does not fit stands below it.
        reason = " ".join(str(error).partition("\n")[2].partition("\n")[0].split()).rstrip(".")
        raise VitrailError(
            f"{path} does not fit model '{recipe.model.name}' ({reason}): {remedy}"
        ) from None


def weights_owner(path: Path) -> dict[str, Any]:
    """Return the `recipe_hash` and the `seed` that a weights file names as its own.

    Raises VitrailError if the file is damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise VitrailError(
            f"{path} is damaged ({first_line(error)}): delete it and make it again"
        ) from None
    try:
        owner = json.loads(metadata.get("run", "{}"))
    except ValueError:
        owner = None
    if not isinstance(owner, dict):
        raise VitrailError(
            f"{path} names no run as its own (its metadata 'run' is {metadata['run']!r}): delete "
            "it and make it again"
        )
    return owner


def write_receipt(job: TrainingJob, weights: Mapping[int, Path]) -> None:
    """Write down the weights that a job has trained."""
    receipt = {
        "paper": job.paper,
        "recipe": job.name,
        "recipe_hash": job.recipe.hash,
        "sha256": {str(seed): sha256(file) for seed, file in weights.items()},
    }
    write_atomically(job.output, json.dumps(receipt, indent=2) + "\n")


def starting_weights(start: TrainedRun, seed: int) -> Path:
    """Find the weights of a seed of the run that a training starts from.

    Raises VitrailError if that run is not trained, or its weights are not its own.
    """
    weights = start.weights(seed)
    require_recipe(weights, start.recipe_hash)
    require_own_weights(start, seed)
    return weights


def require_own_weights(run: TrainedRun, seed: int) -> str:
    """Refuse weights of another seed, or others than the run's receipt names; return their SHA-256.

    A rehearsal leaves no receipt; its weights need only name the seed.
    """
    weights, receipt = run.weights(seed), run.receipts.get(seed)
    remedy = f"delete {receipt or run.folder} and {weights.parent} to train seed {seed} again"
    owner = weights_owner(weights).get("seed")
    if owner != seed:
        raise VitrailError(f"{weights} holds weights of seed {owner}, not of seed {seed}; {remedy}")
    digest = sha256(weights)
    if receipt is not None and receipt.is_file() and trained_weights(receipt).get(seed) != digest:
        raise VitrailError(
            f"{weights} has not the SHA-256 of the weights that {receipt} names; {remedy}"
        )
    return digest


def trained_weights(receipt: Path) -> dict[int, str]:
    """Read a receipt: the SHA-256 of the weights of each seed; VitrailError if it is damaged."""
    try:
        digests = json.loads(receipt.read_text(encoding="utf-8"))["sha256"]
        return {int(seed): str(digest) for seed, digest in digests.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise VitrailError(
            f"{receipt} does not say which weights were trained; delete it and "
            f"{receipt.parent}/seed* to train again"
        ) from None
