"""The octic paper's measures, figures and training by DINOv2."""
