"""A circular shift of the image changes the logits of a Swin, and not one bit of an A-Swin's.

The modules of Sec. 4 choose tokens, windows and patches by their content, so an image and its
shifted copy are divided into the same patches and windows. Both models have the same weights.
"""

import timm
import torch
from torch.nn.functional import interpolate

from vitrail import make_shift_equivariant

torch.manual_seed(0)
swin = timm.create_model("swin_tiny_patch4_window7_224").eval()
adaptive = make_shift_equivariant(swin, selection="per_stage").eval()
image = interpolate(torch.rand(1, 3, 28, 28), 224, mode="bicubic")

for shift in ((1, 1), (5, 17), (100, 31)):
    shifted = image.roll(shift, dims=(2, 3))
    for name, model in (("Swin-T", swin), ("A-Swin-T", adaptive)):
        with torch.inference_mode():
            change = (model(shifted) - model(image)).abs().max().item()
        print(f"{name:8} shifted by {shift}: the logits change by {change:.1e}")
