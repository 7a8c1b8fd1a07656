"""A model as `torch.export` and ONNX's runtime run it, with batches of any size."""

import onnxruntime
import torch


def exported(model, images):
    """Export a model; a batch of these images stands for one of any size."""
    batch = {0: torch.export.Dim("batch")}
    with torch.no_grad():
        return torch.export.export(model, (images,), dynamic_shapes=(batch,))


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
