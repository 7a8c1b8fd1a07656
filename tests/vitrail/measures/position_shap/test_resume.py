import pytest
import torch
from torch.utils.data import TensorDataset

from tests.vitrail.measures.position_shap.models import Tokens, assert_same, samples
from vitrail.errors import VitrailError
from vitrail.measures.position_shap.measure import position_shap


class Dying(Tokens):
    """Dies in a given call."""

    def __init__(self, last):
        super().__init__()
        self.last = last

    def forward(self, images, permutation=None):
        if len(self.calls) == self.last:
            raise KeyboardInterrupt
        return super().forward(images, permutation)


def killed(data, file, last=12, **options):
    """Leave what a sweep of K = 4 has done when it dies in a call."""
    with pytest.raises(KeyboardInterrupt):
        position_shap(Dying(last), data, permutations=4, batch_size=8, resume=file, **options)


def test_a_sweep_goes_on_where_it_was_killed(tmp_path):
    data, file = samples(40), tmp_path / "sweep"
    whole = position_shap(Tokens(), data, permutations=4, batch_size=8)
    killed(data, file)  # two batches of five passes are whole
    begun = file.read_bytes()
    killed(data, file, last=8)  # then one more
    assert file.read_bytes().startswith(begun)  # appended to, not written anew
    with file.open("ab") as half:
        half.write(b"half a row")
    model = Tokens()
    resumed = position_shap(model, data, permutations=4, batch_size=8, resume=file)
    assert_same(resumed, whole)
    assert resumed.interval == whole.interval
    assert model.passes == 2 + (40 - 24) * 5  # two to know the model and the images again
    assert not file.exists()


def test_progress_of_another_sweep_is_refused(tmp_path):
    data, file = samples(40), tmp_path / "sweep"
    killed(data, file, data_digest="a")
    kept = file.read_bytes()

    def resume(model, data, permutations=4, data_digest="a"):
        position_shap(model, data, permutations=permutations, resume=file, data_digest=data_digest)

    with pytest.raises(
        VitrailError, match=r"for \{'permutations': 4\}, not for \{'permutations': 6\}"
    ):
        resume(Tokens(), data, 6)
    with pytest.raises(VitrailError, match=r"for \{'images and labels': 'a'\}, not .*: 'b'\}"):
        resume(Tokens(), data, data_digest="b")
    with pytest.raises(VitrailError, match="another model or other images: delete it"):
        resume(Tokens(strength=2), data)
    images, labels = data.tensors
    others = samples(40, seed=2), TensorDataset(torch.cat([images[:1], -images[1:]]), labels)
    for other in others:
        with pytest.raises(VitrailError, match="another model or other images: delete it"):
            resume(Tokens(), other)
    assert file.read_bytes() == kept
    twice = kept + kept[kept.index(b"\n") + 1 :]  # as two processes at once would leave it
    for damaged in (b"nonsense", b"{}\n", b"[1]\n", twice):
        file.write_bytes(damaged)
        with pytest.raises(VitrailError, match="was not written by this measure: delete it"):
            resume(Tokens(), data)
        assert file.read_bytes() == damaged


def test_a_file_that_cannot_be_written_is_told_before_it_is_needed(tmp_path):
    model = Tokens()
    for file in (tmp_path, tmp_path / "none" / "sweep"):
        with pytest.raises(VitrailError, match=f"cannot write {file} "):
            position_shap(model, samples(9), resume=file)
    assert model.passes == 0


def test_a_sweep_that_may_stop_goes_on_too(tmp_path):
    data, file = samples(300), tmp_path / "sweep"
    whole = position_shap(Tokens(), data, permutations=4, batch_size=8, max_half_width=0.03)
    killed(data, file, max_half_width=0.03)
    with pytest.raises(VitrailError, match="'order': 'drawn'"):
        position_shap(Tokens(), data, permutations=4, resume=file)
    resumed = position_shap(
        Tokens(), data, permutations=4, batch_size=8, max_half_width=0.03, resume=file
    )
    assert_same(resumed, whole)
    assert torch.equal(resumed.samples, whole.samples)
