import subprocess
import sys


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_torchvision_and_timm_import_after_vitrail():
    done = python("import vitrail, timm, torchvision; print('both')")
    assert done.stdout == "both\n", done.stderr


def test_it_declares_the_operators_when_the_extension_does_not_load():
    done = python(
        "import torch\n"
        "def refuse(path): raise OSError('wrong CUDA')\n"
        "torch.ops.load_library = refuse\n"
        "import vitrail, torchvision\n"
        "print(torch.ops.torchvision.nms.default._schema)\n"
        "print(torch.ops.torchvision.qnms.default._schema)\n"
    )
    arguments = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor\n"
    expected = f"torchvision::nms{arguments}torchvision::qnms{arguments}"
    assert done.stdout == expected, done.stderr


def test_it_declares_nothing_when_the_extension_loads():
    done = python(
        "import importlib.util, torch, vitrail\n"
        "torch.ops.load_library = lambda path: None\n"
        "importlib.util.find_spec('torchvision')\n"
        "print(hasattr(torch.ops.torchvision, 'nms'))\n"
    )
    assert done.stdout == "False\n", done.stderr


def test_importing_vitrail_imports_neither_torch_nor_torchvision():
    done = python("import sys, vitrail; print({'torch', 'torchvision'} & set(sys.modules))")
    assert done.stdout == "set()\n", done.stderr
