"""Variance shift in the positional embedding of Vision Transformers (Kim & Kim, AAAI 2025).

The first layer normalisation sees the sum X + P of patch and positional embedding, so what P
contributes to it depends on the ratio of their variances.

- Read `rescaling` first: the paper's method, UP(P) / sqrt(k).
- `upsampling` computes k, the variance ratio of interpolation (Theorem 1, Table 2).
- `resolution_accuracy` measures a classifier on images of another size, with its positions
  calibrated by the method.

The method in segmentation is in `vitrail.segmentation.vit`, and Propositions 1 to 3, which are
about augmentations, are in `replication.papers.variance.augmentation_measures`. The code of each
equation of the paper: docs/equations/variance.md.
"""
