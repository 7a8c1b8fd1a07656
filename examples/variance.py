"""Upsampling a table of white noise loses variance, and UP(P) / sqrt(k) restores it (Theorem 1).

A smooth table loses almost no variance, and the paper's constant makes its variance too large.
`calibration="empirical"`, an extension of ours, restores the variance of any table.
"""

import torch
from torch.nn.functional import interpolate

from vitrail.variance.rescaling import rescaled_table
from vitrail.variance.upsampling import variance_ratio

torch.manual_seed(0)
old, new = (14, 14), (28, 28)
noise = torch.randn(1, 384, *old, dtype=torch.float64)
smooth = interpolate(torch.randn(1, 384, 4, 4, dtype=torch.float64), old, mode="bicubic")

k = variance_ratio((224, 224), (448, 448), "bicubic", antialias=False)
print(f"k of white noise, bicubic, 224 to 448: {k:.4f}")
for name, planes in (("white noise", noise), ("a smooth table", smooth)):
    table = planes.flatten(2).transpose(1, 2)  # (1, positions, channels)
    for calibration in ("none", "constant", "empirical"):
        larger = rescaled_table(table, old, new, antialias=False, calibration=calibration)
        ratio = (larger.var(correction=0) / table.var(correction=0)).item()
        print(f"{name}, calibration {calibration}: Var after / Var before = {ratio:.3f}")
