import subprocess
import sys

import pytest

FULL_MEMORY = """
import errno, os
from vitrail.measures.loading import eval_loader

class Label(str):
    def __reduce__(self):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

if __name__ == "__main__":
    list(eval_loader([("image", Label("label"))], batch_size=1, workers=1))
"""


@pytest.mark.slow
def test_a_batch_that_a_worker_cannot_hand_over_ends_the_process():
    """As where the shared memory is full when the batch is put into it."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_MEMORY],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
