from torch.testing import assert_close

from vitrail.position.embeddings.absolute import APE
from vitrail.position.embeddings.auto import AutoPE


def test_an_embedding_begins_at_half(layout):
    auto = AutoPE(APE, layout(class_token=True))
    assert auto.gamma.shape == ()
    assert_close(auto.table(1), auto.embedding.weight / 2)
    assert auto.positions == 16
