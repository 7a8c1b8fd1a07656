"""Variance shift in the positional embedding of Vision Transformers (Kim & Kim, AAAI 2025).

The first layer normalisation sees the sum X + P of patch and positional embedding, so what P
contributes depends on the ratio of their variances. `upsampling` says what interpolation does to
a variance (Theorem 1, Table 2), `rescaling` is the paper's method, UP(P) / sqrt(k), and `sizes`
judges a classifier on images of another size by it.
"""
