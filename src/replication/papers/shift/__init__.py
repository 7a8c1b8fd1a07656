"""The shift paper's measures and figures."""
