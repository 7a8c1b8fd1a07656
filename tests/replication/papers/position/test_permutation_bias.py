import pytest

from replication.papers.position.permutation_bias import bias_of_few
from tests.vitrail.measures.position_shap.models import corner_samples
from vitrail.errors import VitrailError


def test_groups_of_many_permutations_tell_the_bias_of_few():
    model, data, exact = corner_samples()
    truth, biases = bias_of_few(model, data, [1, 2, 4], reference=240, batch_size=70)
    assert truth == pytest.approx(exact, abs=5e-5)
    for k, (plain, mended) in biases.items():
        assert plain == pytest.approx(biases[1][0] / k, rel=0.3)
        assert mended == plain if k == 1 else abs(mended) < plain / 2
    with pytest.raises(VitrailError, match=r"permutations are \[10\]; give at most reference = 8"):
        bias_of_few(model, data, [10], reference=8)
    with pytest.raises(VitrailError, match="permutations is 3; give 1 or an even number"):
        bias_of_few(model, data, [3], reference=8)
    with pytest.raises(VitrailError, match="permutations is empty"):
        bias_of_few(model, data, [], reference=8)
