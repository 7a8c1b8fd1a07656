"""The questions that an audit (`vitrail.commands.audit`) answers.

Each answer begins with yes or no and the limit between the two, and is based on rows of the audit.
It also gives a value to compare with: one that a paper prints for models on ImageNet, or one that
holds for a model by its construction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import norm

from vitrail.commands import count

Part = Mapping[str, Any]
Row = Mapping[str, Any]

CONSISTENT = 99
"""Percent of images: a model with a larger share of unchanged predictions is called consistent. The
limit is between the shift paper's values for Swin-T and for A-Swin-T under circular shifts. Under
shifts that change content at the border, no model of the paper reaches it."""
POSITION = 0.01
"""P-SHAP, between 0 and 1: a model with a larger share is said to use position."""
ROUNDING = 1e-3
"""The largest difference of two logits that rounding in float32 may cause."""
ONE_CLASS = 0.95
"""Share of images: if a model predicts one class for more of them, the user is warned."""
YARDSTICKS = {
    "C-Cons.": {"Swin-T": 86.68, "A-Swin-T (Ours)": 99.98},
    "S-Cons.": {"Swin-T": 92.41, "A-Swin-T (Ours)": 93.24},
}
"""Percent, as printed for ImageNet (shift, Table 2, by column)."""


@dataclass(frozen=True)
class Seen:
    """The images of an audit.

    Attributes:
        predicted: the class that the model predicts for each image.
        labelled: whether their labels are known; if not, predictions are used as labels.
        left: number of images in the folder that were not measured.
    """

    predicted: Sequence[int]
    labelled: bool
    left: int

    def more(self, needed: int = 0) -> str:
        """Return a sentence on how to measure more images, or as many as are `needed`."""
        most = len(self.predicted) + self.left
        few = self.left == 0 or needed > most
        add = f"add images to the folder, which has {most}, and " if few else ""
        return f"To measure more, {add}give a larger --images and another --output."


def answers(parts: Mapping[str, Part], seen: Seen) -> Iterator[str]:
    """Yield a paragraph for each question that the measured `parts`, by name, can answer."""
    yield from _warning(seen)
    if rows := _rows(parts["Circular shifts"]):
        two, worst = [row for row in rows if row["quantity"] == "prediction stays"]
        (change,) = [row for row in rows if "largest difference" in row["quantity"]]
        lower = min(worst, two, key=lambda row: row["value"])
        verdict = _verdict(lower, change["value"] <= ROUNDING, seen)
        yield (
            f"Is it consistent under shifts? {verdict} {_measured(worst)} keep their prediction "
            f"under all of 16 circular shifts, {two['value']:.4g} %{_interval(two)} have the same "
            f"prediction under two. {_printed('C-Cons.')} under two."
        )
    if rows := _rows(parts["Standard shifts"]):
        (crops,) = [row for row in rows if row["condition"].startswith("crops")]
        yield (
            f"Also where shifts change the image's border? {_verdict(crops, False, seen)} "
            f"{_measured(crops)} have the same prediction in two crops. {_printed('S-Cons.')}, so "
            "no model of that paper is consistent in this test."
        )
    if rows := _rows(parts["Turns and mirrors"]):
        together = {row["quantity"]: row for row in rows if row["condition"] == "all of these"}
        kept = together.pop("prediction stays")
        (equal,) = together.values()
        verdict = _verdict(kept, equal["value"] == 100, seen)
        yield (
            f"Is it consistent under turns and mirrors? {verdict} {_measured(kept)} have the same "
            "prediction in all eight views. A D8 model of the octic paper keeps all predictions "
            "by its construction."
        )
    if rows := _rows(parts["P-SHAP"]):
        share = rows[0]
        over = count(len(seen.predicted), "image")
        if seen.labelled:
            over = f"the {share['images']} of {over} that are predicted correctly"
        yield (
            f"Does it use position? {_uses_position(share, seen)} P-SHAP is the share of a "
            f"prediction that is due to position: {share['value']:.2g}{_interval(share)}, over "
            f"{over}. For a ViT-Ti trained on ImageNet it is about 0.2 (position, Appendix H)."
        )


def _warning(seen: Seen) -> Iterator[str]:
    """Yield a warning if nearly all images are predicted as one class.

    Such a model keeps its predictions under any change of the images.
    """
    (label, images), *_ = Counter(seen.predicted).most_common(1) or [(0, 0)]
    if images > ONE_CLASS * len(seen.predicted):
        yield (
            f"Take care: of {count(len(seen.predicted), 'image')} the model predicts one class, "
            f"number {label}, for {images}. A model that predicts one class for all images keeps "
            "its prediction whatever is done to an image. If the images are of several classes, "
            "check the weights, and the mean, standard deviation and size that the model expects."
        )


def _rows(part: Part) -> list[Row]:
    return list(part.get("rows", []))


def _verdict(kept: Row, exact: bool, seen: Seen) -> str:
    """Return a sentence: whether the share of unchanged predictions is above `CONSISTENT`.

    It is undecided if the 95 % interval contains the limit, unless `exact`: no prediction changed,
    and no logit by more than rounding. Then a few images suffice, as a model that is not consistent
    changes the logits of every image.
    """
    if exact and kept["value"] == 100:
        return "Yes: no prediction changed, and no logit by more than rounding."
    if kept["low"] >= CONSISTENT:
        return f"Yes: more than {CONSISTENT} % of images keep their prediction."
    if kept["high"] < CONSISTENT:
        return f"No: fewer than {CONSISTENT} % of images keep their prediction."
    needed = _images_needed() if kept["value"] == 100 else 0
    enough = f" If all do, {needed} images show it." if needed else ""
    return (
        f"{count(kept['images'], 'image')} cannot tell whether more than {CONSISTENT} % keep their "
        f"prediction.{enough} {seen.more(needed)}"
    )


def _uses_position(share: Row, seen: Seen) -> str:
    """Return a sentence: whether P-SHAP is above `POSITION`; undecided if its interval has both."""
    if share["low"] is not None and share["low"] > POSITION:
        return f"Yes: P-SHAP is above {POSITION}."
    if share["high"] is not None and share["high"] <= POSITION:
        return f"No: P-SHAP is not above {POSITION}."
    images = count(share["images"], "image")
    return f"{images} cannot tell whether P-SHAP is above {POSITION}. {seen.more()}"


def _images_needed() -> int:
    """Return the number of images at which, if no prediction changes, the answer is yes.

    From then on Wilson's 95 % interval is above `CONSISTENT`.
    """
    z = norm.ppf(0.975)
    return int(CONSISTENT / (100 - CONSISTENT) * z**2) + 1


def _measured(row: Row) -> str:
    return f"{row['value']:.4g} % of {count(row['images'], 'image')}{_interval(row)}"


def _interval(row: Row) -> str:
    return "" if row["low"] is None else f" (95 %: {row['low']:.3g} to {row['high']:.3g})"


def _printed(column: str) -> str:
    plain, adaptive = YARDSTICKS[column].values()
    return f"On ImageNet Swin-T has {plain} % and A-Swin-T {adaptive} % (shift, Table 2)"
