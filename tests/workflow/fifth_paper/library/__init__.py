"""A template paper's ideas."""
