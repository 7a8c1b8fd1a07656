"""All that only a GPU can tell, in one run: `make gpu-check`. See `benchmarks.gpu.__main__`."""

import os

# Steps are forks, which cannot use CUDA if an import has asked its runtime whether there is a GPU.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
