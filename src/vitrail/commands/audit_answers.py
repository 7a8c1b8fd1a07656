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
lies between what the shift paper prints for Swin-T and for A-Swin-T."""
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
            f"image have the same prediction for {_measured(two)}. {_printed('C-Cons.')}"
            f"{placed('C-Cons.', two['value'])}"
        )
    if rows := _rows(parts["Standard shifts"]):
        (crops,) = [row for row in rows if row["condition"].startswith("crops")]
        yield (
            "And where shifts change the image's border? Two crops of an image have the same "
            f"prediction for {_measured(crops)}. {_printed('S-Cons.')}"
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
        yield (
            f"How much does it use position? P-SHAP is {rows[0]['value']:.2g}{_interval(rows[0])}, "
            "between 0 (not at all) and 1. Yardstick: about 0.2 for a ViT-Ti that was trained on "
            f"ImageNet (position, Appendix H).{placed('P-SHAP', rows[0]['value'])}"
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
