"""A model as `torch.export` and ONNX's runtime run it, with batches of any size."""

import onnxruntime
import pytest
import torch


def exported(model, images):
    """Export a model; a batch of these images stands for one of any size up to 4096.

    Without a largest size torch 2.6 exports not even timm's ViT: the size could be 2^63 - 1.
    """
    batch = {0: torch.export.Dim("batch", max=4096)}
    with torch.no_grad():
        return torch.export.export(model, (images,), dynamic_shapes=(batch,))


def needs_onnx_of_torch_2_7():
    """Skip the rest of a test of a model on which `torch.onnx.export` of torch 2.6 fails."""
    if torch.__version__ < "2.7":
        pytest.skip("torch 2.6 has an ONNX exporter that fails on CvT and octic models")


def in_onnx(program, folder):
    """What was exported as a function of images that ONNX's runtime computes."""
    # ONNX's own optimiser would take as long as all the rest; the demo's models pass through it.
    torch.onnx.export(program, optimize=False, verbose=False).save(folder / "model.onnx")
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    (images,) = session.get_inputs()

    def logits(pixels):
        (result,) = session.run(None, {images.name: pixels.numpy()})
        return torch.tensor(result)

    return logits
