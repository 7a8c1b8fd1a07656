"""Take a measurement: run its function on a trained model, on a recipe, or on neither."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any, get_args, get_origin

from replication.config.functions import import_function
from replication.config.recipe import EpochTraining, short_hash
from replication.context import Context, Described, Trained
from replication.datasets.verify import check_layout
from replication.images.opening import opened_once, splits_by_seed
from replication.jobs.run_weights import require_own_weights
from replication.measures.resume import keeping
from replication.plan.code_digest import measurement_code
from replication.records.nodes import MeasurementNode
from replication.records.specs import Measurement
from replication.training.dispatch import builder_of
from replication.training.model_factory import torch_device
from replication.training.weights import load_weights
from vitrail.errors import VitrailError
from vitrail.measures.outputs import without_tf32
from vitrail.provenance import provenance

ON = {Described: "recipe", Trained: "run"}


def take(node: MeasurementNode) -> dict[str, Any]:
    """Take a measurement; return the outcome of its node.

    If an earlier attempt was killed, it continues from the rows that were stored beside the
    weights. It also uses features that other measurements stored there.

    Returns:
        ``values``; ``drawn_by_seed``, whether each seed is judged on images of its own; the digest
            of the ``code``; for a trained model the SHA-256 of the ``weights``; and ``provenance``,
            where and when it was measured.

    Raises:
        VitrailError: this machine does not have the node's device, the function does not exist, or
            a run is not trained or not as its record says.
    """
    own = node.measurement
    torch_device(own.device)
    function = import_function(own.function, "artifacts.yaml")
    for info in own.reads:
        check_layout(info, node.data_root)
    without_tf32()
    # Read before measuring, since files may change while it runs.
    origin = provenance(own.device, commit=node.commit)
    recipe = own.on.recipe if own.on else None
    code = measurement_code(own.function, own.args, recipe, own.reads).digest
    start = time.monotonic()
    with opened_once(), keeping(_kept_under(node, code)):
        given = subject(node)
        _require_wanted(function, given, own)
        values = dict(function(given, **own.args))
        weights = {"weights": require_own_weights(own.run).outcome["sha256"]} if own.run else {}
    measured = own.datasets or own.reads[:1]
    drawn = bool(measured) and all(map(splits_by_seed, measured))
    return {
        "values": values,
        "drawn_by_seed": drawn,
        "code": code,
        **weights,
        "provenance": {**origin, "wall_seconds": round(time.monotonic() - start, 3)},
    }


def _kept_under(node: MeasurementNode, code: str) -> str:
    """Return the digest of what stored features depend on besides weights, arguments and seed."""
    shared = {"datasets", "data", "recipe", "device"}
    decided = {name: value for name, value in node.decided.items() if name in shared}
    return short_hash([decided, code])


def _require_wanted(function: Callable[..., Any], given: Context, own: Measurement) -> None:
    """Raise VitrailError unless a measure accepts what it is given.

    Its first parameter is annotated as a context, a recipe (`Described`) or a trained model
    (`Trained`). Without a type parameter, the recipe of the latter two is an `EpochTraining`.
    """
    first = next(iter(inspect.signature(function).parameters.values())).annotation
    written = inspect.unwrap(function).__globals__  # the names in the measure's module
    try:
        wanted = eval(first, written) if isinstance(first, str) else first
    except NameError as error:
        raise VitrailError(
            f"{own.function} takes a {first}, and its module has no '{error.name}' when it runs: "
            "import that outside of 'if TYPE_CHECKING'"
        ) from None
    kind: type = get_origin(wanted) or wanted
    if kind not in ON:
        return
    if not isinstance(given, kind):
        raise VitrailError(
            f"{own.function} takes a {kind.__name__} and measure '{own.name}' gives it a "
            f"{type(given).__name__}: write 'on: {ON[kind]}' for it in artifacts.yaml"
        )
    (recipe,) = get_args(wanted) or (EpochTraining,)
    if isinstance(given, Described) and not isinstance(given.recipe, recipe):
        raise VitrailError(
            f"{own.function} measures a {recipe.__name__} and '{own.name}' is taken on a "
            f"{type(given.recipe).__name__}: correct the cell's measure or recipe in artifacts.yaml"
        )


def subject(node: MeasurementNode) -> Context:
    """Return what the function is given: a trained model, a recipe, or only the context.

    Raises:
        VitrailError: the run is not trained, or its weights are not those that its record names.
    """
    own = node.measurement
    where = (own.device, node.data_root, own.seed)
    context = Context(*where, workers=node.workers, datasets=own.datasets)
    if own.on is None:
        return context
    recipe, dataset = own.on.recipe, own.on.dataset
    described = Described(**vars(context), recipe=recipe, info=dataset)
    if own.run is None:
        return described
    model = builder_of(recipe).build_model(recipe, dataset.classes)
    load_weights(model, own.run.weights, recipe)
    facts = require_own_weights(own.run).outcome["facts"]
    model = model.to(context.device).eval()
    return Trained(**vars(described), model=model, folder=own.run.folder, facts=facts)
