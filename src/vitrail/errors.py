"""One exception for everything a user can put right, and the one way it reaches them."""

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
"""A measure that is not defined for a model gives None under a key, and under the key with this at
its end the sentence that says why. Tables then show the sentence."""

HANDFUL = 12  # known words that are listed all


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest known word, else what is known.

    The closest begins most like `word`, as far as `word` goes, which may be an abbreviation; of
    several the shortest. Of more than a `HANDFUL` of words those most like `word` are named.
    """
    known = sorted(known)
    beginnings = sorted({name[: len(word)] for name in known if word})
    if close := difflib.get_close_matches(word, beginnings, n=1):
        begun = min((name for name in known if name.startswith(close[0])), key=len)
        return f"; did you mean '{begun}'?"
    if len(known) <= HANDFUL:
        return f"; known: {', '.join(known)}"
    nearest = difflib.get_close_matches(word, known, n=HANDFUL, cutoff=0)
    return f"; the closest of {len(known)} are: {', '.join(nearest)}"


def require_known(what: str, name: str, known: Iterable[str]) -> None:
    """Raise a `VitrailError`, with the closest name, unless `name` is known; `what` is its kind.

    A `name` that is no text, such as None, is not known.
    """
    known = list(known)
    if name not in known:
        raise VitrailError(f"{what} '{name}' is unknown{did_you_mean(str(name), known)}")


@contextmanager
def os_errors(problem: str, remedy: str) -> Iterator[None]:
    """Tell an OSError of the block in a sentence: the problem, the system's reason, the remedy."""
    try:
        yield
    except OSError as error:
        raise VitrailError(f"{problem} ({error.strerror or error}): {remedy}") from error


def first_line(error: Exception) -> str:
    """Return the error's first line, without its full stop, or its type if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".: ") if lines else type(error).__name__


def needs_package(name: str) -> str:
    """Say that a command needs the package `name`, and how the commands' packages are installed."""
    extra = "segmentation" if name.split(".")[0] in ("mmcv", "mmengine", "mmseg") else "cli"
    return f"the command needs {name}; in the project's root, run: pip install '.[{extra}]'"


def sentence(error: VitrailError) -> str:
    """Return the error's own sentence, also where a loader's worker has raised it.

    torch hands such an error on as one of the same type whose message is the worker's traceback.
    """
    return str(error).rpartition(f"{VitrailError.__module__}.VitrailError: ")[2].strip()


def exit_on_error(main: Callable[[], None]) -> None:
    """Run a command's `main`; say in one line what is wrong or not installed, and exit with 2."""
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
