"""The questions that an audit (`vitrail.commands.audit`) answers.

Each answer is based on rows of the audit. The answer to a yes-or-no question begins with yes or no
and the limit between the two. It also gives a value to compare with: one that a paper prints for
models on ImageNet, or one that holds for a model by its construction. If the answer is no, it
names a recipe that mends this, where there is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import norm

from vitrail.commands import count

Part = Mapping[str, Any]
Row = Mapping[str, Any]

KEPT = "prediction stays"
"""The quantity of rows with a share of unchanged predictions."""
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
RECIPES = {
    "Circular shifts": (
        "A Swin, SwinV2, MViTv2 or CvT can be made consistent, by make_shift_equivariant and "
        "fine-tuning; it converts no others: "
        "docs/library.md#make-my-swin-shift-equivariant-and-fine-tune-it"
    ),
    "Turns and mirrors": (
        "GroupAverage makes any model consistent: "
        "docs/library.md#make-my-vit-invariant-to-turns-and-mirrors"
    ),
}
"""What makes a model consistent and where this is described, by the part of an audit."""
YARDSTICKS = {
    "C-Cons.": {"Swin-T": 86.68, "A-Swin-T (Ours)": 99.98},
    "S-Cons.": {"Swin-T": 92.41, "A-Swin-T (Ours)": 93.24},
}
"""Percent, as printed for ImageNet (shift, Table 2, by column)."""
GAINS = {288: 0.036, 672: 2.488}
"""Points by test size, as printed for a ViT-B/16 on ImageNet (variance, Table 3)."""


@dataclass(frozen=True)
class Seen:
    """The images of an audit.

    Attributes:
        predicted: the class that the model predicts for each image.
        labelled: whether their labels are known; if not, predictions are used as labels.
        left: number of images in the folder that were not measured.
        classes: number of the model's classes.
        size: the model's own image size in pixels.
    """

    predicted: Sequence[int]
    labelled: bool
    left: int
    classes: int
    size: int

    def more(self, needed: int = 0) -> str:
        """Return a sentence on how to measure more images, or as many as are `needed`."""
        most = len(self.predicted) + self.left
        few = self.left == 0 or needed > most
        add = f"add images to the folder, which has {most}, and " if few else ""
        return f"To measure more, {add}give a larger --images and another --output."


def answers(parts: Mapping[str, Part], seen: Seen) -> Iterator[str]:
    """Yield a paragraph for each question, answered from the `parts` of an audit by name."""
    yield from _warning(seen)
    for name, (question, answer) in QUESTIONS.items():
        part = parts[name]
        if "refused" in part:
            yield f"{question} Not measured: {part['refused']}."
        else:
            told = f"{question} {answer(part['rows'], seen)} {recipe(name, part)}"
            yield told.rstrip()


def recipe(name: str, part: Part) -> str:
    """Return the recipe for a part of an audit whose answer is no; "" if there is none."""
    kept = _kept(part.get("rows", []))
    return RECIPES.get(name, "") if kept and _is_no(_lowest(kept)) else ""


def interval(row: Row) -> str:
    """Return a row's 95 % interval as text without exponents, "" if it has none."""
    return "" if row["low"] is None else f"{short(row['low'])} to {short(row['high'])}"


def _accuracy(rows: Sequence[Row], seen: Seen) -> str:
    top1, guess = rows[0], 100 / seen.classes
    told = (
        f"Top-1 is {_measured(top1)}; guessing one of {seen.classes} classes is right for "
        f"{guess:.3g} %."
    )
    if top1["low"] > guess:
        return told
    if top1["high"] < guess:
        return (
            f"{told} So it is worse than guessing: the labels may have another order than the "
            "model's classes (--class-map FILE gives it)."
        )
    return f"{told} So it may be guessing, and what follows may say little about a trained model."


def _circular_shifts(rows: Sequence[Row], seen: Seen) -> str:
    two, worst = kept = _kept(rows)
    (change,) = [row for row in rows if "largest difference" in row["quantity"]]
    return (
        f"{_verdict(_lowest(kept), change['value'] <= ROUNDING, seen)} {_measured(worst)} keep "
        f"their prediction under all of 16 circular shifts, {_share(two)} have the same prediction "
        f"under two. On ImageNet {_printed('C-Cons.')} under two."
    )


def _standard_shifts(rows: Sequence[Row], seen: Seen) -> str:
    padded, crops = kept = _kept(rows)
    return (
        f"{_verdict(_lowest(kept), False, seen)} {_measured(padded)} have the same prediction "
        f"under two shifts that leave black pixels, {_share(crops)} in two crops. In crops of "
        f"ImageNet {_printed('S-Cons.')}, so no model of that paper is consistent in this test."
    )


def _turns(rows: Sequence[Row], seen: Seen) -> str:
    together = {row["quantity"]: row for row in rows if row["condition"] == "all of these"}
    kept = together.pop(KEPT)
    (equal,) = together.values()
    return (
        f"{_verdict(kept, equal['value'] == 100, seen)} {_measured(kept)} have the same prediction "
        "in all eight views. A D8 model of the octic paper keeps all predictions by its "
        "construction."
    )


def _position(rows: Sequence[Row], seen: Seen) -> str:
    (share,) = rows
    within = f"95 %: {interval(share)}" if interval(share) else share["condition"]
    over = count(len(seen.predicted), "image")
    if seen.labelled:
        over = f"the {share['images']} of {over} that are predicted correctly"
    return (
        f"{_uses_position(share, seen)} P-SHAP is the share of a prediction that is due to "
        f"position: {short(share['value'], 2)} ({within}), over {over}. For a ViT-Ti trained on "
        "ImageNet it is about 0.2 (position, Appendix H)."
    )


def _sizes(rows: Sequence[Row], seen: Seen) -> str:
    """Tell the rows of each size."""
    (own,) = [row for row in rows if row["condition"] == f"{seen.size} px"]
    others = [row for row in rows if row is not own]
    what = own["quantity"].partition(": ")[0]
    sizes: dict[str, list[str]] = {}
    for row in others:
        way = row["quantity"].partition(": ")[2]
        sizes.setdefault(row["condition"], []).append(f"{row['value']:.4g} % ({way})")
    found = [f"{', '.join(shares)} at {size}" for size, shares in sizes.items()]
    here = (
        f"{what[0].upper()}{what[1:]}: {own['value']:.4g} % at the model's own {own['condition']}"
    )
    told = f"{'; '.join([here, *found])}."
    if len(others) == len(sizes):  # one row for each size: there is no table of positions
        return told
    gains = " and ".join(f"{gain:.2g} at {pixels} px" for pixels, gain in GAINS.items())
    return (
        f"{told} UP(P) is the position table resized as usual, which the variance paper divides "
        f"by sqrt(k): on ImageNet this gains a ViT-B/16 of 224 px {gains} (variance, Table 3)."
    )


QUESTIONS: dict[str, tuple[str, Callable[[Sequence[Row], Seen], str]]] = {
    "Accuracy": ("How accurate is it?", _accuracy),
    "Circular shifts": ("Is it consistent under shifts?", _circular_shifts),
    "Standard shifts": ("Also where shifts change the image's border?", _standard_shifts),
    "Turns and mirrors": ("Is it consistent under turns and mirrors?", _turns),
    "P-SHAP": ("Does it use position?", _position),
    "Test sizes": ("How accurate is it at other image sizes?", _sizes),
}
"""Questions by the part of an audit that answers them, and the function that writes the answer."""


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


def _kept(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["quantity"] == KEPT]


def _lowest(rows: Sequence[Row]) -> Row:
    """Return the row with the lowest interval; all are shares of the same images."""
    return min(rows, key=lambda row: row["value"])


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
    if _is_no(kept):
        return f"No: fewer than {CONSISTENT} % of images keep their prediction."
    needed = _images_needed() if kept["value"] == 100 else 0
    enough = f" If all do, {needed} images show it." if needed else ""
    return (
        f"{count(kept['images'], 'image')} cannot tell whether more than {CONSISTENT} % keep their "
        f"prediction.{enough} {seen.more(needed)}"
    )


def _is_no(kept: Row) -> bool:
    return bool(kept["high"] < CONSISTENT)


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
    return _share(row, f" of {count(row['images'], 'image')}")


def _share(row: Row, of: str = "") -> str:
    return f"{row['value']:.4g} %{of} (95 %: {interval(row)})"


def short(value: float, digits: int = 3) -> str:
    """Return a percentage or a P-SHAP in so many significant digits, but at most 4 decimals."""
    return f"{round(value, 4):.{digits}g}"


def _printed(column: str) -> str:
    plain, adaptive = YARDSTICKS[column].values()
    return f"Swin-T has {plain} % and A-Swin-T {adaptive} % (shift, Table 2)"
