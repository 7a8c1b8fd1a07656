"""Self-supervised pre-training by DINOv2 (Oquab et al., 2024), and the evaluation of its features.

To read it in order: `network` (backbones with the projection head; the dense backbone is in
`vitrail.octic.masked_vit`), `crops` (the inputs of teacher and student), `losses`, `optimizer`
(learning rates, weight decay, the moving average), `training`; then the evaluation:
`feature_classifiers` (nearest neighbours, logistic regression), `image_probes` and `patch_probes`.
"""
