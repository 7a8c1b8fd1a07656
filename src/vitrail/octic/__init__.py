"""Octic Vision Transformers: equivariant to quarter turns and mirrorings (Nordström et al., 2025).

A linear layer that commutes with the eight symmetries of the square is block diagonal in the basis
of their irreducible representations: it needs an eighth of the parameters, and 5.33 times fewer
multiplications. The features stay in that basis, one plane of channels for each of its vectors:

- `group`: the elements, their representations and Fourier transform, the features as one tensor;
- `layers`: the layers of a block, stated plainly (octic, Sec. 3.3); `fast_block`: the block as
  models run it; `kernels`: its activation as one kernel, on a GPU;
- `embeddings`: patches and positions, which turn with the image (octic, Sec. 3.3.1);
- `invariants`: invariants of such features (octic, App. D), and a check of a model's invariance;
- `vit`: the families D8, H8 and I8, registered with timm; `flip`: the baselines D2 and H2;
- `group_averaging`: a plain ViT made invariant by eight forward passes, to compare with them;
- `turns`: the accuracy of any classifier on turned and mirrored images (octic, Sec.
  4.1);
- `shapes`: widths and depths of all of them, and plain ViTs of the shapes that timm lacks;
- `checkpoint`: to and from the published weights.
"""
