"""Self-supervised pre-training by DINOv2 (Oquab et al., 2024), and the evaluation of its features.

To read it in order: `vit` (the dense backbone), `network` (backbones with the projection head),
`crops` (what teacher and student see), `losses`, `optimizer` (rates, decays, the moving average),
`neighbours` (k-nearest neighbours), `probes` and `patch_probes` (linear classifiers). Training
itself is in `replication.papers.octic.dinov2.training`.
"""
