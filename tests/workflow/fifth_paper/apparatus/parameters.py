"""How large a model is."""

from vitrail.factory import build_model
from vitrail.measures.context import Described, Values


def parameters(described: Described) -> Values:
    """Count the parameters of the recipe's model."""
    model = build_model(described.recipe, described.info.classes)
    return {"parameters": sum(p.numel() for p in model.parameters())}
