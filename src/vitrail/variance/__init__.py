"""Variance shift in the positional embedding of Vision Transformers (Kim & Kim, AAAI 2025).

The first layer normalisation sees the sum X + P of patch and positional embedding, so what P
contributes to it depends on the ratio of their variances. `upsampling` computes what interpolation
does to a variance (Theorem 1, Table 2), `rescaling` is the paper's method, UP(P) / sqrt(k), and
`resolution_accuracy` measures a classifier on images of another size, with its positions calibrated
by it.
"""
