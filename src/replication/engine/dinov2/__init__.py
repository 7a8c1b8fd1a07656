"""The training of backbones by DINOv2 under our rules of resuming, and what its steps cost."""
