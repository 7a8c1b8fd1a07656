"""Quarter turns and mirrorings do not change the logits of a D8, and change those of an H8.

An octic linear layer has one small matrix for each irrep (Sec. 3.3.2), so it takes 64 / 12 times
fewer multiplications than a dense one.
"""

import timm
import torch
from torch.nn.functional import interpolate
from torch.utils.flop_counter import FlopCounterMode

import vitrail.models  # noqa: F401 - registers the models with timm
from vitrail.octic.group import ELEMENTS, transform
from vitrail.octic.layers import OcticLinear

torch.manual_seed(0)
image = interpolate(torch.rand(1, 3, 28, 28, dtype=torch.float64), 224, mode="bicubic")
for name in ("octic_d8_vit_small_patch16_224", "octic_h8_vit_small_patch16_224"):
    model = timm.create_model(name, depth=4, init_values=1).eval().double()
    with torch.inference_mode():
        logits = model(image)
        changes = {
            element: (model(transform(image, element)) - logits).abs().max() for element in ELEMENTS
        }
    told = ", ".join(f"{element} {change:.0e}" for element, change in changes.items())
    print(f"{name}: largest change of a logit by {told}")

flops = {}
layers = {"dense": torch.nn.Linear(768, 768), "octic": OcticLinear(768, 768)}
features = {"dense": torch.randn(1, 196, 768), "octic": torch.randn(8, 1, 196, 96)}
for name, layer in layers.items():
    with FlopCounterMode(display=False) as counter:
        layer(features[name])
    flops[name] = counter.get_total_flops()
print(f"a dense linear layer takes {flops['dense'] / flops['octic']:.2f} times the FLOPs")
