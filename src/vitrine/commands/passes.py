"""What evaluations cost: the forward passes that each measure of trained models takes.

How often a measure passes each validation image through the model, and at which size, follows from
its arguments by the rules below. Measures without a rule (probes that are trained, features of
training images, illustrations) are named, and not priced.

At best a device does the forward FLOPs at the fastest rate that it sustains in training; at worst
an image takes as long as one of a training at the slowest, since reading images may take the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vitrine.commands.cost import BACKWARD, Costs, Range
from vitrine.plan.catalog import Measurement
from vitrine.plan.recipe import Recipe

Passes = Mapping[float, int]
"""Forward passes of each image, by the size of the images over the recipe's."""


def _larger(arguments: Mapping[str, Any], models: int) -> Passes:
    """At each test size that is judged, one pass by each of the models."""
    sizes = set(arguments["sizes"]) - set(arguments.get("skipped", ()))
    return {size / arguments["trained_at"]: models for size in sorted(sizes)}


def _circular(arguments: Mapping[str, Any]) -> Passes:
    """Each condition's pairs of shifts, and each view once before any shift."""
    conditions = list((arguments.get("conditions") or {"": {}}).values())
    seen = {
        tuple({**arguments, **one}.get(key, default) for key, default in VIEW.items())
        for one in conditions
    }
    return {1: len(seen) + 2 * arguments.get("pairs", 1) * len(conditions)}


VIEW = {"erase": 0.0, "flip": None}  # what makes two conditions show the model other images

RULES: dict[str, Callable[[Mapping[str, Any]], Passes]] = {
    "vitrine.measures.accuracy:accuracy": lambda given: {1: 1},
    "vitrine.octic.measures:rotated_accuracy": lambda given: {1: 2},
    "vitrine.measures.consistency:circular_consistency": _circular,
    "vitrine.measures.consistency:standard_consistency": lambda given: {
        1: len(given.get("modes", ("zero", "crop"))) * (1 + 2 * given.get("pairs", 1))
    },
    "vitrine.position.measures:position_bias": lambda given: {1: 1 + given.get("permutations", 16)},
    "vitrine.variance.measures:rescaling": lambda given: _larger(given, 3),
    "vitrine.variance.measures:amplification": lambda given: _larger(
        given, len({1.0, *given["factors"]})
    ),
    "vitrine.segmentation.accuracy:segmentation_accuracy": lambda given: {1: 1},
    "vitrine.segmentation.accuracy:calibrated_accuracy": lambda given: {1: 4},
    "vitrine.segmentation.consistency:segmentation_consistency": lambda given: {1: 2},
}


def evaluation_seconds(measurement: Measurement, costs: Costs) -> Range | None:
    """Seconds of one device for all seeds of a measurement, None where its measure has no rule.

    Raises:
        VitrineError: there is no such model, or it refuses its arguments.
    """
    rule, run = RULES.get(measurement.function), measurement.run
    if rule is None or run is None:
        return None
    images = min(measurement.args.get("images") or run.info.val_images, run.info.val_images)
    flops = 0.0
    for size, passes in rule(measurement.args).items():
        recipe = run.recipe
        if size != 1 and isinstance(recipe, Recipe):
            side = round(size * recipe.data.image_size)
            data = recipe.data.model_copy(update={"image_size": side})
            args = {**recipe.model.args, "img_size": side}
            model = recipe.model.model_copy(update={"args": args})
            recipe = recipe.model_copy(update={"data": data, "model": model})
        forward = costs.model(run, recipe).forward_flops
        flops += passes * images * forward * len(measurement.seeds)
    slowest, fastest = costs.device.sustained
    return Range(flops / fastest, BACKWARD * flops / slowest)
