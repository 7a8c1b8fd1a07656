"""Octic Vision Transformers: equivariant to quarter turns and mirrorings (Nordström et al., 2025).

A linear layer that commutes with the eight symmetries of the square is block diagonal in the basis
of their irreducible representations: it needs an eighth of the parameters, and 5.33 times fewer
multiplications. The features stay in that basis. They have one plane of channels for each vector of
the basis.

The method, in the order in which to read it:

- `group` (equations 1 to 6, and 11): the elements of the group D8, their representations, the
  Fourier transform, and how the group acts on features, which are one tensor;
- `layers` (equations 7 to 9; octic, Sec. 3.3): the layers of a block, written without any
  optimisation;
- `embeddings` (equation 10; octic, Sec. 3.3.1): patches and positions, which turn with the image;
- `invariants` (equations 12 to 17; octic, App. D): invariants of such features, and a check of a
  model's invariance;
- `vit`: the model families D8, H8 and I8, registered with timm.

The rest:

- `fast_block`: a faster form of the block of `layers`, which the models run; `kernels`: the GELU of
  this block as one kernel, on a GPU;
- `flip`: the baselines D2 and H2; `masked_vit`: the plain ViT with a mask token, as DINOv2 has it;
- `group_averaging`: any classifier made invariant by eight forward passes, as a comparison;
- `turns`: the accuracy of any classifier on turned and mirrored images (octic, Sec. 4.1);
- `shapes`: widths and depths of all these models, and plain ViTs of the shapes that timm lacks;
- `checkpoint`: converts weights from and to the layout of the authors' code.
"""
