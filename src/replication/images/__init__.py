"""Images for a model: open datasets, decode, transform, and load batches by step number."""
