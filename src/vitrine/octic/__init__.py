"""Octic Vision Transformers: equivariant to quarter turns and mirrorings (Nordström et al., 2025).

A linear layer that commutes with the eight symmetries of the square is block diagonal in the basis
of their irreducible representations: it needs an eighth of the parameters, and 5.33 times fewer
multiplications. The features stay in that basis, one plane of channels for each of its vectors:

- `group`: the eight elements, their representations and the Fourier transform between them;
- `features`: the one tensor that holds the features, and the group's action on it;
- `linear`, `norm`, `dropout`, `activation`, `attention`, `mlp`, `block`: the layers (Sec. 3.3);
- `quarters`, `patch_embed`, `position`: how an image becomes such features;
- `invariants`: what no element of the group changes about them (Appendix D);
- `vit`, `flip`, `models`: the families D8, H8, I8 and the baselines D2, H2, registered with timm;
- `checkpoint`: to and from the published weights; `equivariance`: the check;
- `kernels`: the activation as one kernel, on a GPU.
"""
