"""The variance paper's measures and figures."""
