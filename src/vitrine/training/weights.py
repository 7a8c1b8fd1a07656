"""``python -m vitrine.training.weights``: fetch published weights, by timm's name or their URL.

Done once where there is a network, so that jobs on nodes without one find the weights in a file.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import timm
import torch
from safetensors.torch import save

import vitrine.models  # noqa: F401
from vitrine.errors import VitrineError, exit_on_error
from vitrine.files import atomic_path
from vitrine.training.model import first_line, require_known


def fetch(model: str, output: Path | None = None) -> None:
    """Fetch weights into timm's own store, and from there into a safetensors file.

    Args:
        model: a timm name, with the tag of the weights where there are several.
        output: the file; None leaves them in timm's store (the Hugging Face cache, HF_HOME).

    Raises:
        VitrineError: the model or its weights do not exist, or cannot be fetched or written.
    """
    require_known(model)
    try:
        published = timm.create_model(model, pretrained=True)
    except (OSError, RuntimeError) as error:  # huggingface_hub's own errors are OSErrors
        raise VitrineError(
            f"the published weights of '{model}' cannot be fetched ({first_line(error)}): check "
            "the tag in the name and the connection, or copy the Hugging Face cache of a machine "
            "that has them and set HF_HOME to it"
        ) from None
    if output is not None:
        tensors = {name: value.contiguous() for name, value in published.state_dict().items()}
        with atomic_path(output) as partial:
            partial.write_bytes(save(tensors, metadata={"model": model}))


def download(url: str, output: Path) -> None:
    """Fetch a checkpoint; digits after a hyphen at the end of its name begin its SHA-256.

    Raises:
        VitrineError: it cannot be fetched or written, or is not what its name says.
    """
    digits = re.search(r"-([0-9a-f]{8,})\.", output.name)
    with atomic_path(output) as partial:
        try:
            torch.hub.download_url_to_file(
                url, str(partial), hash_prefix=digits[1] if digits else None, progress=False
            )
        except (OSError, RuntimeError) as error:  # urllib's own errors are OSErrors
            raise VitrineError(
                f"{url} cannot be fetched ({first_line(error)}): check the connection, or place "
                f"the file as {output}"
            ) from None


def main() -> None:
    """Fetch one model's weights."""
    parser = argparse.ArgumentParser(prog="python -m vitrine.training.weights", description=__doc__)
    parser.add_argument("model", help="a timm name such as vit_small_patch16_224.dino, or a URL")
    parser.add_argument("--output", type=Path, help="a safetensors file, of a URL the same file")
    args = parser.parse_args()
    if "://" in args.model:
        download(args.model, args.output or Path(args.model.rpartition("/")[2]))
    else:
        fetch(args.model, args.output)


if __name__ == "__main__":
    exit_on_error(main)
