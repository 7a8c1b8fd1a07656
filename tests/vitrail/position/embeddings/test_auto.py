import torch
from torch.testing import assert_close

from vitrail.position.embeddings import build_embedding
from vitrail.position.embeddings.absolute import APE
from vitrail.position.embeddings.auto import AutoPE


def test_an_embedding_begins_at_half(layout):
    auto = AutoPE(APE, layout(class_token=True))
    assert auto.gamma.shape == ()
    assert_close(auto.table(1), auto.embedding.weight / 2)
    assert auto.positions == 16


def test_a_shared_factor_turns_all_layers_as_equal_factors_of_each_do(layout):
    """position, App. I."""
    torch.manual_seed(0)
    shared = build_embedding("auto-rope-shared", layout())
    each = build_embedding("auto-rope", layout())
    assert (shared.gamma.shape, each.gamma.shape) == ((), (2,))
    each.frequencies.data = shared.frequencies.data
    shared.gamma.data.fill_(-1.3)
    each.gamma.data.fill_(-1.3)
    for layer in range(2):
        assert_close(shared.angles(layer), each.angles(layer))
    each.gamma.data[1] = 0.4
    assert not torch.allclose(shared.angles(1), each.angles(1))
