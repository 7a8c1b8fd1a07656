"""The position paper's measures and figures."""
