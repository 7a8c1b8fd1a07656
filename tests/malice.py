"""Files of weights that would run a command, and the trace that the command would leave."""

import os
import pickle
from pathlib import Path

import torch


class Command:
    """Unpickles to a call that makes a folder."""

    def __init__(self, trace: Path) -> None:
        self.trace = str(trace)

    def __reduce__(self):
        return os.mkdir, (self.trace,)


class Confusing(Command):
    """Unpickles to such a call, beside one that no restricted reader understands."""

    def __reduce__(self):
        return os.mkdir, (self.trace,), {"state": 1}


def zipped(file: Path, trace: Path) -> None:
    """As torch writes files, beside sound weights."""
    torch.save({"state_dict": {"a": torch.zeros(2)}, "meta": Command(trace)}, file)


def legacy(file: Path, trace: Path) -> None:
    """As torch wrote files before version 1.6."""
    torch.save({"model": Confusing(trace)}, file, _use_new_zipfile_serialization=False)


def bare(file: Path, trace: Path) -> None:
    """A pickle that torch never wrote."""
    file.write_bytes(pickle.dumps(Command(trace), protocol=2))


ATTACKS = [zipped, legacy, bare]
