"""How large a model is."""

from replication.context import Described, Values
from replication.training.model_factory import build_model


def parameters(described: Described) -> Values:
    """Count the parameters of the recipe's model."""
    model = build_model(described.recipe, described.info.classes)
    return {"parameters": sum(p.numel() for p in model.parameters())}
