import pytest

from replication.training.run_folder import read_finished
from vitrail.errors import VitrailError


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"null", b"\xff", b"[" * 100_000, b'{"commit": "x"}']
)
def test_a_broken_note_is_one_sentence_with_its_path(tmp_path, content):
    (tmp_path / "finished.json").write_bytes(content)
    with pytest.raises(VitrailError, match=f"cannot read {tmp_path}/finished.json ") as error:
        read_finished(tmp_path)
    assert "\n" not in str(error.value)
