"""The questions that an audit (`vitrail.commands.audit`) answers in a sentence.

Each answer stands on rows of the audit, and beside a yardstick: what a paper prints for two models
on ImageNet, or what a model keeps by its construction. Then it says where the number lies among the
families of the cross table, if that is published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from scipy.stats import norm

from vitrail.commands import count
from vitrail.cross.placing import placed

Part = Mapping[str, Any]
Row = Mapping[str, Any]

CONSISTENT = 99
"""Percent of images: a model whose share of kept predictions is larger is called consistent. It
lies between what the shift paper prints for Swin-T and for A-Swin-T under circular shifts. Where
content changes at the border, no model of the paper reaches it, and none is called consistent."""
POSITION = 0.01
"""P-SHAP, between 0 and 1: a model with a larger share is said to use position."""
ROUNDING = 1e-3
"""The largest difference of two logits that is still owed to float32."""
YARDSTICKS = {
    "C-Cons.": {"Swin-T": 86.68, "A-Swin-T (Ours)": 99.98},
    "S-Cons.": {"Swin-T": 92.41, "A-Swin-T (Ours)": 93.24},
}
"""Percent, as printed for ImageNet (shift, Table 2, by column)."""


def answers(parts: Mapping[str, Part]) -> Iterator[str]:
    """Yield a paragraph for each question that the measured `parts`, by name, can answer."""
    if rows := _rows(parts["Circular shifts"]):
        two, worst = [row for row in rows if row["quantity"] == "prediction stays"]
        (change,) = [row for row in rows if "largest difference" in row["quantity"]]
        exact = worst["value"] == 100 and change["value"] <= ROUNDING
        yield (
            f"Is it consistent under shifts? {_verdict(two, exact)} Two circular shifts of an "
            f"image have the same prediction for {_measured(two)}; under the worst of 16 shifts "
            f"{worst['value']:.4g} % keep theirs. {_printed('C-Cons.')}"
            f"{placed('C-Cons.', two['value'])}"
        )
    if rows := _rows(parts["Standard shifts"]):
        (crops,) = [row for row in rows if row["condition"].startswith("crops")]
        yield (
            f"Also where shifts change the image's border? {_verdict(crops, exact=False)} Two "
            f"crops of an image have the same prediction for {_measured(crops)}. "
            f"{_printed('S-Cons.')}"
            f"{placed('S-Cons.', crops['value'])}"
        )
    if rows := _rows(parts["Turns and mirrors"]):
        together = {row["quantity"]: row for row in rows if row["condition"] == "all of these"}
        kept = together.pop("prediction stays")
        (equal,) = together.values()
        yield (
            f"Is it consistent under turns and mirrors? {_verdict(kept, equal['value'] == 100)} "
            f"All eight views of an image have the same prediction for {_measured(kept)}. "
            "Yardstick: a D8 model of the octic paper keeps all predictions by its construction."
            f"{placed('turns', kept['value'])}"
        )
    if rows := _rows(parts["P-SHAP"]):
        share = rows[0]
        yield (
            f"Does it use position? {_uses_position(share)} P-SHAP, the share of a prediction "
            f"that is owed to position, is {share['value']:.2g}{_interval(share)}. Yardstick: "
            "about 0.2 for a ViT-Ti that was trained on ImageNet (position, Appendix H)."
            f"{placed('P-SHAP', share['value'])}"
        )


def _rows(part: Part) -> list[Row]:
    return list(part.get("rows", []))


def _verdict(kept: Row, exact: bool) -> str:
    """Whether a share of kept predictions is above `CONSISTENT`, as far as its interval tells.

    `exact`: no prediction changed, and no logit by more than rounding. A few images then suffice,
    as a model that is not consistent changes the logits of every image.
    """
    if kept["low"] >= CONSISTENT or exact:
        return "Yes."
    if kept["high"] < CONSISTENT:
        return "No."
    return (
        f"{count(kept['images'], 'image')} cannot tell: {CONSISTENT} % lies in the interval. "
        f"{_images_needed()} images or more (--images) would settle it if all predictions stayed."
    )


def _uses_position(share: Row) -> str:
    """Whether P-SHAP is above `POSITION`, as far as its interval tells."""
    if share["low"] is not None and share["low"] > POSITION:
        return "Yes."
    if share["high"] is not None and share["high"] <= POSITION:
        return "No."
    images = count(share["images"], "image")
    return f"{images} cannot tell whether it is above {POSITION}; measure more (--images)."


def _images_needed() -> int:
    """Images of which all must stay for Wilson's interval of 95 % to lie above `CONSISTENT`."""
    z = norm.ppf(0.975)
    return int(CONSISTENT / (100 - CONSISTENT) * z**2) + 1


def _measured(row: Row) -> str:
    return f"{row['value']:.4g} % of {count(row['images'], 'image')}{_interval(row)}"


def _interval(row: Row) -> str:
    return "" if row["low"] is None else f" (95 %: {row['low']:.3g} to {row['high']:.3g})"


def _printed(column: str) -> str:
    plain, adaptive = YARDSTICKS[column].values()
    return (
        f"Yardstick: {plain} % for Swin-T and {adaptive} % for A-Swin-T, on ImageNet "
        "(shift, Table 2)."
    )
