"""Pictures in the place of a dataset's validation images."""

from PIL import Image

from replication.config.datasets import load_registry
from replication.context import Context
from tests.conftest import ROOT


def context_of(folder, pictures):
    """Place pictures (H, W, 3) uint8 in Tiny-ImageNet's layout; a context whose dataset it is.

    They lie below `folder`, without loss.
    """
    val = folder / "tiny-imagenet" / "tiny-imagenet-200" / "val"
    (val / "images").mkdir(parents=True)
    lines = []
    for number, pixels in enumerate(pictures):
        Image.fromarray(pixels).save(val / "images" / f"{number}.JPEG", format="PNG")
        lines.append(f"{number}.JPEG\tn00000000\t0\t0\t1\t1\n")
    (val / "val_annotations.txt").write_text("".join(lines))
    (val.parent / "wnids.txt").write_text("n00000000\n")
    registry = load_registry(ROOT / "configs" / "datasets.yaml")
    return Context("cpu", folder, 0, datasets=(registry["tiny-imagenet"],))
