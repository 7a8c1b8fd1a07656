"""The two code examples of the shift paper: a classifier (Sec. A2.1), an encoder-decoder (A2.2).

The paper prints an error of 0.0 for both. Each is compared with the same model with fixed grids.
"""

import torch

from replication.papers.shift.code_examples import ApmergeClassifier, EncDec

torch.manual_seed(0)

# Sec. A2.1: logits of an image, and of the image shifted by up to 3 pixels
x = torch.randn(1, 3, 8, 8).double()
shifts = torch.randint(-3, 3, (20, 2)).tolist()
for name, adaptive in (("A-PMerge", True), ("fixed grid", False)):
    model = ApmergeClassifier(dim=3, num_classes=4, adaptive=adaptive).double().eval()
    errors = [torch.norm(model(x) - model(x.roll(shift, dims=(2, 3)))) for shift in shifts]
    print(f"A2.1, {name}: error {max(errors):.1e} at most of {len(shifts)} shifts")

# Sec. A2.2: maps of two shifted images; one map is shifted to compare it with the other
x = torch.randn(1, 3, 28, 28).double()
shifts = torch.randint(-6, 6, (20, 2, 2))
for name, adaptive in (("A-PMerge and A-WSA", True), ("fixed grids", False)):
    model = EncDec(dim=3, win_sz=7, adaptive=adaptive).double().eval()
    errors = []
    for s01, s02 in shifts:
        y01, y02 = (model(x.roll(s.tolist(), dims=(-1, -2))) for s in (s01, s02))
        z = y01.roll((s02 - s01).tolist(), dims=(-1, -2))
        errors.append(torch.norm(z - y02))
    print(f"A2.2, {name}: error {max(errors):.1e} at most of {len(shifts)} pairs")
