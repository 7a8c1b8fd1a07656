"""The two code examples of the paper (shift, Sec. A2.1, Sec. A2.2), on the modules of this package.

`examples/shift_appendix.py` runs both. The paper's own code is not public; the names of the
classes, the sizes and the shifts are those that it prints.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from replication.context import Context, Values
from vitrail.measures.equivariance import Group
from vitrail.measures.invariance import change_under
from vitrail.shift.geometry import Frame, roll_image, to_pixels
from vitrail.shift.polyphase import roll
from vitrail.shift.selection import FixedSelection, PerLayerSelection

STRIDE = 2  # of merging


class Merging(nn.Module):
    """Swin's patch merging of ``(B, H, W, dim)``: a norm and a projection of 2 x 2 tokens.

    With `adaptive`, the grid of patches is chosen by the input (A-PMerge); otherwise it begins at
    the first token.
    """

    def __init__(self, dim: int, adaptive: bool) -> None:
        super().__init__()
        self.grid = PerLayerSelection() if adaptive else FixedSelection()
        self.project = nn.Sequential(
            nn.LayerNorm(STRIDE**2 * dim), nn.Linear(STRIDE**2 * dim, STRIDE * dim, bias=False)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return tokens ``(B, H / 2, W / 2, 2 dim)`` and the phase ``(B, 2)`` of the grid."""
        return self.grid.merge_patches(x, self.project)


class ApmergeClassifier(nn.Module):
    """A-PMerge, global average pooling and a linear head (shift, Sec. A2.1)."""

    def __init__(self, dim: int = 3, num_classes: int = 4, adaptive: bool = True) -> None:
        super().__init__()
        self.apmerge = Merging(dim, adaptive)
        self.fc = nn.Linear(STRIDE * dim, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``(B, num_classes)`` of tokens ``(B, dim, H, W)``."""
        merged, _ = self.apmerge(x.permute(0, 2, 3, 1))
        logits: Tensor = self.fc(merged.mean(dim=(1, 2)))
        return logits


class EncDec(nn.Module):
    """A-PMerge with the windows of A-WSA, then unpooling that inserts zeros (shift, Sec. A2.2)."""

    def __init__(self, dim: int = 3, win_sz: int = 7, adaptive: bool = True) -> None:
        super().__init__()
        self.apmerge, self.window = Merging(dim, adaptive), (win_sz, win_sz)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(B, 2 dim, H, W)`` of tokens ``(B, dim, H, W)``."""
        merged, phase = self.apmerge(x.permute(0, 2, 3, 1))
        frame = Frame.of(x).sampled(phase, STRIDE)
        offset = self.apmerge.grid.choose_windows(merged, self.window, merged=False, anchored=False)
        if offset is not None:
            merged, frame = roll(merged, offset), frame.rolled(offset)
        return to_pixels(frame.place(merged), mode="zero_insert")


def appendix_examples(context: Context, images: int = 16, shifts: int = 4) -> Values:
    """Measure both examples on noise, and both with a fixed grid as negative controls.

    Source: shift, Sec. A2.1 (8 x 8 tokens, shifts of -3 to 2), Sec. A2.2 (28 x 28, -6 to 5). The
    paper runs each on one image and one shift, in float64.

    Returns:
        the fields of `vitrail.measures.invariance.Change`, with the prefixes ``classifier/``,
        ``classifier, fixed/``, ``encoder-decoder/`` and ``encoder-decoder, fixed/``.
    """
    values: dict[str, float] = {}
    for name, model_type, side, most in (
        ("classifier", ApmergeClassifier, 8, 3),
        ("encoder-decoder", EncDec, 28, 6),
    ):
        for label, adaptive in ((name, True), (f"{name}, fixed", False)):
            torch.manual_seed(context.seed)
            model = model_type(adaptive=adaptive).double().eval()
            x = torch.randn(images, 3, side, side, dtype=torch.float64)
            elements = torch.randint(-most, most, (shifts, images, 2)).unbind()
            group = Group(elements, roll_image)
            if model_type is EncDec:
                group = group._replace(on_output=roll_image)
            changes = change_under(model, group, x)._asdict()
            values |= {f"{label}/{key}": value for key, value in changes.items()}
    return values
