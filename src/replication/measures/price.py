"""What a measure leaves on the disk, told for `vitrail plan`.

`replication.config.python_source.deciding_tree` leaves the marks out of the code of a measure, so
that another price has nothing measured again.
"""

# decides no number

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from replication.context import Measure

BytesOf: TypeAlias = "Callable[[Mapping[str, Any]], int]"
NUMBER = 8  # bytes of a label, and of the place that a kept row begins with


def keeps(count: BytesOf) -> Callable[[Measure], Measure]:
    """Say how many bytes of rows a measure has kept of a seed when it is taken.

        @keeps(lambda given: bytes_of_tokens(given["images"], given))
        def knn(trained: Trained, precision: Precision = "fp32", ...) -> Values: ...

    The function is given what that of `replication.context.passes` is, and the length of the
    model's output as ``width``. The lines at the head of the files are not counted.
    """

    def mark(measure: Measure) -> Measure:
        measure.keeps = count  # type: ignore[attr-defined]
        return measure

    return mark


def bytes_of_tokens(images: int, given: Mapping[str, Any]) -> int:
    """Bytes of the class tokens of some images, in the precision that is given, with labels."""
    of_number = 4 if given["precision"] == "fp32" else 2
    return images * (2 * NUMBER + of_number * given["width"])


def bytes_of_verdicts(rows: int, images: int) -> int:
    """Bytes of rows that have for each image whether it was classified rightly."""
    return rows * (NUMBER + images)
