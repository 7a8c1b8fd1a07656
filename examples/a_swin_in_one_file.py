"""A-Swin in one file: timm's plain Swin or SwinV2, made truly shift-invariant (shift, Sec. 4).

Tokenisation, windows and patch merging each lay a grid over their input. There are s x s possible
grids. The paper uses the grid with the largest score: it shifts the input by m*, where this grid
begins, and the plain module does the rest. So a window has the same tokens after a shift of the
image, and Swin's position bias stays as it is (Sec. 5.4). docs/equations/shift.md lists the
library's code of each equation.
"""

import copy
from collections.abc import Callable

import timm
import torch
from timm.models.swin_transformer_v2 import SwinTransformerV2
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

TIE = 1e-12  # scores that differ relatively by at most this are equal, in float64 (vitrail: 1e-6)


def shift(x: Tensor, m: Tensor) -> Tensor:
    """Return S^m x of (B, H, W, C), each sample with its own m of (B, 2)."""
    pairs = zip(x, m.tolist(), strict=True)
    return torch.stack([sample.roll((-i, -j), (0, 1)) for sample, (i, j) in pairs])  # Eq. 1


def every(f: Callable[[Tensor], Tensor], x: Tensor, s: int) -> Tensor:
    """Return f(S^m x) for all m below (s, s): (B, s s, ...)."""
    shifts = [(i, j) for i in range(s) for j in range(s)]  # others repeat these (Lemma 1, Eq. 15)
    return torch.stack([f(x.roll((-i, -j), (1, 2))) for i, j in shifts], dim=1)  # Eq. 14's X^(m)


def tie_break_scores(x: Tensor) -> Tensor:
    """Correlate (..., H, W) with a template that has no period and no symmetry, at every place."""
    sides = enumerate(x.shape[-2:], start=1)
    chirps = [1 + (k * torch.arange(n, dtype=x.dtype).square()).cos() for k, n in sides]
    rows, columns = (torch.stack([c.roll(i) for i in range(len(c))]) for c in chirps)
    return rows @ x @ columns.mT


def strongest(scores: Tensor, places: Tensor, s: int, in_order: bool) -> Tensor:
    """Return m* (B, 2), where the grid with the largest of scores (B, s s) begins.

    The paper has no rule for grids of equal scores. Here the largest of places (B, s s, H/s, W/s)
    decides, and also which token of the grid comes first: m* modulo s is the paper's m*, and the
    rest selects the first token. After this first choice (in_order) the tokens of all shifts of an
    image are in the same order, and the first of equal grids wins.
    """
    equal = scores >= (1 - TIE) * scores.amax(1, keepdim=True)
    if in_order:
        places = -torch.arange(s * s, dtype=scores.dtype)[:, None, None]
    ranks = places.where(equal[:, :, None, None], -torch.inf)
    m, *cell = torch.unravel_index(ranks.flatten(1).argmax(1), ranks.shape[1:])  # Eq. 14, Eq. 20
    return torch.stack([m // s, m % s], 1) + s * torch.stack(cell, 1)


def strongest_grid(f: Callable[[Tensor], Tensor], x: Tensor, s: int, in_order: bool) -> Tensor:
    """Return m* (B, 2) of the grid for which f, of stride s, gives the tokens of largest energy."""
    energies = every(lambda shifted: f(shifted).square().sum(-1), x, s)  # of X^(m) E + b
    # Eq. 14. The paper leaves F open; here it is the squared l2 norm.
    return strongest(energies.sum((2, 3)), tie_break_scores(energies), s, in_order)


def strongest_windows(x: Tensor, w: int, in_order: bool) -> Tensor:
    """Return m* (B, 2) of the grid of windows of w x w tokens with the largest energies."""
    norms = x.norm(dim=-1)  # p = 2
    v = every(lambda shifted: avg_pool2d(shifted, w), norms, w)  # Eq. 17-18
    places = every(lambda shifted: shifted[:, ::w, ::w], tie_break_scores(norms), w)
    return strongest(v.square().sum((2, 3)), places, w, in_order)  # Eq. 20; our G: squared l2


class ASwin(nn.Module):
    """A shift-invariant copy of timm's Swin or SwinV2 of square windows, with its weights."""

    def __init__(self, swin: nn.Module) -> None:
        super().__init__()
        self.swin = copy.deepcopy(swin)
        self.train(swin.training)
        # Norms come after the shifts: normed tokens have nearly equal energies.
        self.norms = nn.ModuleList([self.swin.patch_embed.norm])
        for stage in self.swin.layers:
            for block in stage.blocks:
                block.attn_mask = None  # a torus: a window around its border is like any other
        for merging in (stage.downsample for stage in self.swin.layers[1:]):
            self.norms.append(nn.Identity())
            if isinstance(swin, SwinTransformerV2):  # its norm comes after the projection
                self.norms[-1], merging.norm = merging.norm, nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, classes) of images (B, C, H, W)."""
        token, s = self.token, self.swin.patch_embed.proj.stride[0]
        x = images.movedim(1, -1)
        x = token(shift(x, strongest_grid(token, x, s, False)))  # A-token: Eq. 13
        for index, (stage, norm) in enumerate(zip(self.swin.layers, self.norms, strict=True)):
            if index:
                merge = stage.downsample  # Eq. 10, with s = 2; Swin's norms each patch first
                x = merge(shift(x, strongest_grid(merge, x, 2, True)))  # A-PMerge: Eq. 21-23
            w = stage.blocks[0].window_size[0]
            x = norm(shift(x, strongest_windows(x, w, index > 0)))  # A-WSA: Eq. 19, once in a stage
            for block in stage.blocks:
                x = block(x)  # timm's: Eq. 7-8 in the windows of Eq. 9, with Eq. 11-12
        return self.swin.forward_head(self.swin.norm(x))  # Eq. 3; the sum of Eq. 4 as a mean

    def token(self, x: Tensor) -> Tensor:
        """Tokenise pixels (B, H, W, C)."""
        return self.swin.patch_embed.proj(x.movedim(-1, 1)).movedim(1, -1)  # Eq. 5-6


if __name__ == "__main__":
    torch.manual_seed(0)
    size = {"img_size": 56, "patch_size": 2, "embed_dim": 24}
    swin = timm.create_model("swin_tiny_patch4_window7_224", **size, depths=(2, 2, 2))
    swin = swin.double().eval()
    objects, photo = torch.zeros(1, 3, 56, 56), torch.randn(3, 9, 9)
    objects[..., 3:12, 5:14] = objects[..., 30:39, 21:30] = photo
    stripes = torch.randn(1, 3, 56, 4).tile(1, 1, 1, 14)
    kinds = {"noise": torch.randn(1, 3, 56, 56), "equal objects": objects, "stripes": stripes}
    for name, model in {"Swin": swin, "A-Swin": ASwin(swin)}.items():
        for kind, image in kinds.items():
            shifted = image.roll((5, 17), (2, 3)).double()
            with torch.inference_mode():
                change = (model(shifted) - model(image.double())).abs().max().item()
            print(f"{name:6} shifted by (5, 17), {kind}: the logits change by {change:.1e}")
