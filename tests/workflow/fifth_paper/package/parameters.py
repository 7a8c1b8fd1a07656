"""How large a model is."""

from vitrine.measures.context import Trained, Values


def parameters(trained: Trained) -> Values:
    """Count the model's parameters."""
    return {"parameters": sum(p.numel() for p in trained.model.parameters())}
