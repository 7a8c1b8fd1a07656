"""All that only a GPU can tell, in one run: `make gpu-check`. See `benchmarks.gpu.__main__`."""
