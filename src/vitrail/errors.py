"""The exception for all errors that a user can correct, and how commands report it."""

# decides no number

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


class VitrailError(Exception):
    """A user's mistake or a broken input: one sentence names the thing and the remedy.

    Commands print it without a traceback and exit with status 2.
    """


REFUSED = " refused"
"""The suffix of a key. If a measure is not defined for a model, its value under a key is None, and
its value under the key with this suffix is the sentence that says why. Tables then show it."""

TRAINING_MODE = "the model is in training mode, where dropout changes its logits: call model.eval()"
"""What a measure says of a model whose logits are not those of evaluation."""

HANDFUL = 12  # the largest number of known words that a message lists in full


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest known word, or a list if none is close.

    `word` may be an abbreviation: it is compared with the beginnings of the known words, cut to its
    length, and with the most similar whole word. If several known words have the closest beginning,
    the shortest of them is named. The list has all known words or, if there are more than
    `HANDFUL`, those most similar to `word`.
    """
    known = sorted(known)
    beginnings = sorted({name[: len(word)] for name in known if word})
    whole = difflib.get_close_matches(word, known, n=1, cutoff=0.8)
    if close := difflib.get_close_matches(word, beginnings + whole, n=1):
        meant = min((name for name in known if name.startswith(close[0])), key=len)
        return f"; did you mean '{meant}'?"
    if len(known) <= HANDFUL:
        return "; known: " + ", ".join(name or "''" for name in known)
    nearest = difflib.get_close_matches(word, known, n=HANDFUL, cutoff=0)
    return f"; the closest of {len(known)} are: {', '.join(nearest)}"


def require_known(what: str, name: str, known: Iterable[str], remedy: str = "") -> None:
    """Raise a `VitrailError` that suggests the closest name, unless `name` is in `known`.

    `what` is the kind of name, for the message, which ends with `remedy`. A `name` that is not
    text, such as None, counts as unknown.
    """
    known = list(known)
    if name not in known:
        raise VitrailError(f"{what} '{name}' is unknown{did_you_mean(str(name), known)}{remedy}")


@contextmanager
def os_errors(problem: str, remedy: str) -> Iterator[None]:
    """Raise an OSError of the block as a VitrailError: problem, the system's reason, remedy."""
    try:
        yield
    except OSError as error:
        raise VitrailError(f"{problem} ({error.strerror or error}): {remedy}") from error


def first_line(error: Exception) -> str:
    """Return the first line of the error's message without a period, or its type if it is empty."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".: ") if lines else type(error).__name__


def needs_package(name: str) -> str:
    """Say that a command needs the package `name`, and how the commands' packages are installed."""
    extra = "segmentation" if name.split(".")[0] in ("mmcv", "mmengine", "mmseg") else "cli"
    return f"the command needs {name}; in the project's root, run: pip install '.[{extra}]'"


def sentence(error: VitrailError) -> str:
    """Return the error's own sentence, also if a worker of a DataLoader has raised the error.

    torch raises a worker's error again, with the same type and the worker's traceback as message.
    """
    return str(error).rpartition(f"{VitrailError.__module__}.VitrailError: ")[2].strip()


def exit_on_error(main: Callable[[], None]) -> None:
    """Run a command's `main`; tell a user's error or a missing package in one line, exit with 2."""
    try:
        main()
    except VitrailError as error:
        told = sentence(error)
    except PermissionError as error:
        if error.filename is None:
            raise
        told = (
            f"you have no permission for {error.filename}: ask its owner for it, or name another "
            "folder"
        )
    except ModuleNotFoundError as error:
        if not error.name or error.name.startswith(("vitrail", "replication")):
            raise
        told = needs_package(error.name)
    else:
        return
    print(f"vitrail: {told}", file=sys.stderr)
    raise SystemExit(2)
