"""Ten steps of DINOv2 against a restatement in plain torch (octic, App. E.2 and E.3).

It is written from DINOv2's losses, parameter groups and schedules, and shares with ours the forward
passes and the masks that are drawn. All is in float64, so that rounding does not grow.
"""

import copy
import math

import pytest
import torch

from replication.images.loading import MicroBatch
from replication.papers.octic.dinov2.network import Network, build_model
from replication.papers.octic.dinov2.training import SelfSupervisionTrainer
from replication.training.distributed import Team

STEPS, IMAGES, MICROS, PROTOTYPES = 10, 4, 2, 12
RECIPES = {
    # DINOv2's rules on a schedule of 40 steps.
    "softmax": {
        "teacher": {
            "momentum": [0.992, 1.0],
            "temperature": [0.04, 0.07],
            "temperature_steps": 8,
            "centering": "softmax",
        },
        "schedule": {"steps": 40, "warmup_steps": 4, "min_lr": 1e-6, "freeze_last_layer_steps": 3},
        "optimizer": {"lr": 4e-3, "weight_decay": [0.04, 0.4], "layer_decay": 0.9}
        | {"patch_embed_scale": 0.2, "decay_layer_scale": True, "clip_grad": 0.5},
        "koleo_weight": 0.1,
    },
    # DinoBloom's: a head for patches, no layer decay, no local crops, cut in the warm-up.
    "sinkhorn": {
        "teacher": {
            "momentum": [0.994, 1.0],
            "temperature": [0.04, 0.07],
            "temperature_steps": 30,
            "centering": "sinkhorn",
        },
        "head": {"separate": True},
        "crops": {"local_count": 0},
        "schedule": {"steps": 10, "planned_steps": 200, "warmup_steps": 20, "min_lr": 1e-6}
        | {"freeze_last_layer_steps": 1},
        "optimizer": {"lr": 2e-4, "weight_decay": [0.04, 0.2], "layer_decay": 1.0}
        | {"patch_embed_scale": 0.2, "decay_layer_scale": True, "clip_grad": 3.0},
        "koleo_weight": 0.1,
    },
}


@pytest.fixture(autouse=True)
def _in_float64(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


def batches_of(step, views):
    torch.manual_seed(100 + step)
    sides = [(2, 16)] + ([(views, 8)] if views else [])
    made = [
        [torch.randn(IMAGES, n, 3, side, side, dtype=torch.float64) for n, side in sides]
        for _ in range(MICROS)
    ]
    return [MicroBatch(step, i, crops, torch.zeros(IMAGES)) for i, crops in enumerate(made)]


def rates(kind, step):
    """Learning rate, weight decay, momentum and teacher's temperature of a step."""
    peak, warmup, total, wd, momentum, ramp = {
        "softmax": (4e-3, 4, 40, 0.4, 0.992, 8),
        "sinkhorn": (2e-4, 20, 200, 0.2, 0.994, 30),
    }[kind]
    if step < warmup:
        lr = peak * step / (warmup - 1)
    else:
        turn = math.pi * (step - warmup) / (total - warmup)
        lr = 1e-6 + (peak - 1e-6) * (1 + math.cos(turn)) / 2
    half = (1 + math.cos(math.pi * step / total)) / 2
    temperature = 0.04 + 0.03 * min(step / (ramp - 1), 1)
    return lr, wd + (0.04 - wd) * half, 1 + (momentum - 1) * half, temperature


def factors(kind, name):
    """Factors of learning rate and weight decay: I8 of two blocks, of which the first is octic."""
    decay = 0.9 if kind == "softmax" else 1.0
    part, _, inner = name.partition(".")
    layer = 3
    if part == "backbone" and inner.startswith("blocks."):
        layer = 1 + int(inner[7])
    elif part == "backbone" and not inner.startswith(("norm", "invariantisation")):
        layer = 0
    scale = decay ** (3 - layer) * (0.2 if "patch_embed" in name else 1.0)
    scaling = name.startswith("backbone.blocks.0.ls")
    free = name.endswith("bias") or "norm" in name or ("gamma" in name and not scaling)
    return scale, 0.0 if free else 1.0


def entropies(logits, targets):
    return [-(t * (x / 0.1).log_softmax(-1)).sum() for x, t in zip(logits, targets, strict=True)]


def losses_of(seen, cls, patches, mask):
    """One micro-batch's loss; `cls` (2B, K) and `patches` (M, K) are targets."""
    views = [seen.logits[0][:IMAGES], seen.logits[0][IMAGES:]]
    targets = [cls[:IMAGES], cls[IMAGES:]]
    local = seen.logits[1].split(IMAGES) if len(seen.logits) > 1 else ()
    pairs = 2 + (2 * len(local) or 1)
    loss = (
        sum(sum(entropies(view, target)) / IMAGES for view in local for target in targets) / pairs
    )
    swapped = entropies(views[0], targets[1]) + entropies(views[1], targets[0])
    loss = loss + 2 * sum(swapped) / (2 * IMAGES) / pairs
    of_image = mask.nonzero()[:, 0]
    for entropy, image in zip(entropies(seen.patch_logits, patches), of_image, strict=True):
        loss = loss + entropy / mask[image].sum() / len(mask)
    for features in (seen.features[:IMAGES], seen.features[IMAGES:]):
        x = features / features.norm(dim=1, keepdim=True)
        for i in range(IMAGES):
            others = [j for j in range(IMAGES) if j != i]
            nearest = max(others, key=lambda j: (x[i] @ x[j]).item())
            distance = (x[i] - x[nearest] + 1e-8).norm()
            loss = loss - 0.1 * (distance + 1e-8).log() / IMAGES
    return loss


def centred(kind, batches, temperature, centre):
    """Targets of the micro-batches' logits, and the centre of the next step."""
    if kind == "softmax":
        targets = [((x - centre) / temperature).softmax(-1) for x in batches]
        return targets, 0.9 * centre + 0.1 * sum(x.mean(0) for x in batches) / len(batches)
    q = (torch.cat(batches) / temperature).exp().T
    q = q / q.sum()
    for _ in range(3):
        q = q / q.sum(1, keepdim=True) / PROTOTYPES
        q = q / q.sum(0, keepdim=True) / q.shape[1]
    return list((q * q.shape[1]).T.split([len(x) for x in batches])), centre


@pytest.mark.parametrize("kind", RECIPES)
def test_ten_steps_are_those_of_the_published_rules(make_recipe, kind, monkeypatch):
    recipe = make_recipe(
        RECIPES[kind], {"drop_path": 0.0, "batch": {"size": IMAGES * MICROS, "micro": IMAGES}}
    )
    torch.manual_seed(0)
    network = Network(recipe, build_model(recipe, 10)).double()
    student, teacher = copy.deepcopy(network), copy.deepcopy(network).requires_grad_(False)
    trainer = SelfSupervisionTrainer(network, recipe, 0, Team(0, 1, torch.device("cpu")))
    trainer.targets.double()
    drawn, see = [], trainer._seen
    monkeypatch.setattr(trainer, "_seen", lambda *a: drawn.append(see(*a)) or drawn[-1])
    frozen = recipe.schedule.freeze_last_layer_steps
    centres, state = [torch.zeros(PROTOTYPES, dtype=torch.float64)] * 2, {}
    for step in range(STEPS):
        drawn.clear()
        loss = trainer.step(step, batches_of(step, recipe.crops.local_count))
        lr, decay, momentum, temperature = rates(kind, step)
        with torch.no_grad():
            taught = [teacher(crops[:1], [None], masked.places) for _, crops, masked in drawn]
        logits = [[x.logits[0] for x in taught], [x.patch_logits for x in taught]]
        (cls, centres[0]), (patches, centres[1]) = (
            centred(kind, batches, temperature, centre)
            for batches, centre in zip(logits, centres, strict=True)
        )
        student.zero_grad()
        total = 0.0
        for (_, crops, (mask, index, _)), of_cls, of_patch in zip(drawn, cls, patches, strict=True):
            seen = student(crops, [mask, None][: len(crops)], index)
            part = losses_of(seen, of_cls, of_patch, mask) / MICROS
            part.backward()
            total += part.item()
        assert loss.item() == pytest.approx(total, rel=1e-6)  # summed in float32
        for backbone in (True, False):
            named = [
                (name, p)
                for name, p in student.named_parameters()
                if name.startswith("backbone.") == backbone
            ]
            length = math.sqrt(sum(p.grad.square().sum().item() for _, p in named))
            share = min(1.0, recipe.optimizer.clip_grad / (length + 1e-6))
            for name, p in named:
                m, v = state.get(name, (0.0, 0.0))
                g = share * p.grad
                state[name] = m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
                quotient = m / (1 - 0.9 ** (step + 1))
                quotient = quotient / ((v / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8)
                scale, decayed = factors(kind, name)
                rate = 0.0 if "last_layer" in name and step < frozen else lr * scale
                p.data -= rate * (quotient + decay * decayed * p.data)
        for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
            old.data = momentum * old.data + (1 - momentum) * new.data
    for ours, restated in ((trainer.student, student), (trainer.teacher, teacher)):
        for (name, parameter), other in zip(
            ours.named_parameters(), restated.parameters(), strict=True
        ):
            assert torch.allclose(parameter, other, rtol=0, atol=1e-6), name
