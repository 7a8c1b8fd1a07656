import subprocess
import sys

import pytest


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_torchvision_and_timm_import_after_it():
    done = python("import vitrine.torchvision_compat, torchvision, timm; print('both')")
    assert done.stdout == "both\n", done.stderr


def test_it_declares_the_operators_when_the_extension_does_not_load():
    done = python(
        "import torch\n"
        "def refuse(path): raise OSError('wrong CUDA')\n"
        "torch.ops.load_library = refuse\n"
        "import vitrine.torchvision_compat, torchvision\n"
        "print(torch.ops.torchvision.nms.default._schema)\n"
        "print(torch.ops.torchvision.qnms.default._schema)\n"
    )
    arguments = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor\n"
    expected = f"torchvision::nms{arguments}torchvision::qnms{arguments}"
    assert done.stdout == expected, done.stderr


@pytest.mark.parametrize("reason", ["the extension loads", "torchvision is already imported"])
def test_it_does_nothing_when_nothing_is_missing(reason):
    arrange = {
        "the extension loads": "torch.ops.load_library = lambda path: None",
        "torchvision is already imported": "import sys; sys.modules['torchvision'] = sys",
    }[reason]
    done = python(
        f"import torch\n{arrange}\n"
        "import vitrine.torchvision_compat\n"
        "print(hasattr(torch.ops.torchvision, 'nms'))\n"
    )
    assert done.stdout == "False\n", done.stderr
