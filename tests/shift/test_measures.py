from pathlib import Path

import pytest

from vitrine.errors import VitrineError
from vitrine.measures.context import Context
from vitrine.shift import measures
from vitrine.shift.measures import module_runtime

CONTEXT = Context(device="cpu", data_root=Path("data"), seed=0)
MODULES = ["tokenization", "merging 2", "merging 3", "merging 4", "rpe"]


@pytest.fixture(scope="module")
def runtime():
    return module_runtime(CONTEXT, batch_size=1, passes=1, warmup=0)


@pytest.mark.parametrize("module", MODULES)
def test_the_delta_is_what_the_adaptive_module_takes_longer(runtime, module):
    difference = runtime[f"{module}/adaptive"] - runtime[f"{module}/plain"]
    assert runtime[f"{module}/delta"] == pytest.approx(difference)
    assert runtime[f"{module}/plain"] > 0


def test_the_default_model_selects_no_windows(runtime):
    assert runtime["windows/delta"] == runtime["windows/adaptive"] > 0
    assert "windows/plain" not in runtime


def test_both_position_embeddings_score_the_same_pairs():
    calls = measures._rpe_calls(batch_size=2, device="cpu")
    plain, circular = (calls[f"rpe/{version}"]() for version in ("plain", "adaptive"))
    assert plain.numel() == circular.numel() == 2 * 1 * 56**2 * 14**2


def test_nothing_to_time_is_refused():
    with pytest.raises(VitrineError, match="passes is 0"):
        module_runtime(CONTEXT, passes=0)
