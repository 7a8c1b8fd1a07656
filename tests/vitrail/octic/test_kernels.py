import json
import os
import re
import subprocess
import sys

import pytest
import torch
from torch.nn import functional

from vitrail.octic.group import FOURIER, INVERSE_FOURIER, on_planes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are made
pytest.importorskip("triton")
kernels = pytest.importorskip("vitrail.octic.kernels")

COLUMNS = kernels.BLOCK + 10  # the last block is not full


def eager(x):
    return on_planes(FOURIER, functional.gelu(on_planes(INVERSE_FOURIER, x)))


def test_an_empty_tensor_stays_empty():
    assert kernels.octic_gelu(torch.empty(8, 0, device=DEVICE)).shape == (8, 0)


def test_the_kernel_is_the_reference():
    """octic, Sec. 3.4."""
    x = torch.randn(8, 2, COLUMNS // 2, device=DEVICE)
    torch.testing.assert_close(kernels.octic_gelu(x), eager(x), rtol=0, atol=2e-6)


def test_the_kernels_gradient_is_the_references():
    x = torch.randn(8, COLUMNS, requires_grad=True, device=DEVICE)
    upstream = torch.randn(COLUMNS, 8, device=DEVICE).T
    (expected,) = torch.autograd.grad(eager(x), x, upstream)
    (gradient,) = torch.autograd.grad(kernels.octic_gelu(x), x, upstream)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=2e-6)


def test_a_forward_derivative_is_the_references():
    x, direction = torch.randn(2, 8, COLUMNS, device=DEVICE)
    found = torch.func.jvp(kernels.octic_gelu, (x,), (direction,))
    expected = torch.func.jvp(eager, (x,), (direction,))
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_gradients_of_single_samples_are_the_references(axis):
    """Of a batch whose samples share an upstream gradient."""
    x = torch.randn(8, 8, 3, 5, device=DEVICE)
    upstream = torch.randn(8, 3, 5, device=DEVICE)
    found, expected = (
        torch.func.vmap(
            torch.func.grad(lambda x, function=function: (function(x) * upstream).sum()), axis
        )(x)
        for function in (kernels.octic_gelu, eager)
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)


def test_the_kernel_computes_half_precision_in_float32():
    x = torch.randn(8, 64, device=DEVICE).half()
    expected = eager(x.float()).half()
    torch.testing.assert_close(kernels.octic_gelu(x), expected, rtol=1e-3, atol=1e-6)


# Compiles both kernels for GPUs that need not be here, and prints what the assembler says of each.
COMPILE = """
import itertools, json, re, subprocess, sys, triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource
from vitrail.octic import kernels

made = {}
for generation, dtype, name in itertools.product(
    (80, 90), ("fp32", "fp16", "bf16"), ("_forward", "_backward")
):
    kernel = getattr(kernels, name)
    types = {argument: f"*{dtype}" for argument in kernel.arg_names}
    source = ASTSource(
        fn=kernel,
        signature={**types, "size": "i32", "block": "constexpr"},
        constexprs={"block": kernels.BLOCK},
        attrs={(i,): [["tt.divisibility", 16]] for i in range(len(types) - 1)},
    )
    built = triton.compile(source, target=GPUTarget("cuda", generation, 32))
    ptx, file = built.asm["ptx"], sys.argv[1]
    with open(file, "w") as out:
        out.write(ptx)
    gpu = re.search(r"[.]target (\\w+)", ptx)[1]
    command = [get_ptxas(generation).path, "-v", "--gpu-name", gpu, file, "-o", file + ".out"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    made[f"{name} {dtype} {gpu}"] = (said, ptx, built.asm["ttir"])
print(json.dumps(made))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """By kernel, type and GPU: what ptxas says of it, its PTX and Triton's own code of it."""
    pytest.importorskip("triton", minversion="3.7")  # older ones are asked to compile otherwise
    folder = tmp_path_factory.mktemp("triton")
    environment = {name: os.environ[name] for name in os.environ if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, folder / "kernel.ptx"],
        env={**environment, "TRITON_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr
    kernels_made = json.loads(done.stdout)
    assert len(kernels_made) == 12
    return kernels_made


def test_the_kernels_keep_all_numbers_in_registers_of_which_they_need_at_most_half(compiled):
    """With 128 of them a thread, a multiprocessor has 16 warps at once."""
    for name, (said, _, _) in compiled.items():
        assert "0 bytes spill stores, 0 bytes spill loads" in said, name
        assert int(re.search(r"Used (\d+) registers", said)[1]) <= 128, name


def test_the_kernels_load_and_store_four_neighbouring_entries_at_once(compiled):
    """128 bits of float32, 64 bits of the two types of half that size."""
    for name, (_, ptx, _) in compiled.items():
        words = 4 if "fp32" in name else 2
        accesses = re.findall(r"\b(ld|st)\.global\S*?\.v(\d)\.b32", ptx)
        planes = 8 if "forward" in name else 16  # the gradient's as well
        assert accesses == [("ld", str(words))] * planes + [("st", str(words))] * 8, name
        assert len(re.findall(r"\b(?:ld|st)\.global", ptx)) == len(accesses), name


def test_the_kernels_compute_no_address_in_32_bits(compiled):
    """A plane of 3e8 entries begins beyond what these can count."""
    for name, (_, _, code) in compiled.items():
        products = re.findall(r"arith\.muli .*: (\w+)", code)
        assert set(products) == {"i64"}, name
