"""Truly shift-equivariant Vision Transformers (Rojas-Gomez et al., CVPR 2024).

A strided operation of a ViT lays a fixed grid over its input. The paper lays the grid where the
energy of the input is largest, so that a circular shift of the input moves the grid along:

- `polyphase`: per-sample rolls and phases; `torus`: where they put the tokens in the image;
- `grid_selection`: the choice of grids, a module that a model holds (shift, Sec. 4); what it scores
  them by: `token_energies`, `autocorrelation` and `windows`;
- `error_bounds`: by how much rounding can move these scores, which certifies a choice;
- `cvt`, `mvitv2`: plain backbones that timm lacks; no change of the paper's modules concerns them;
- `swin` (on `circular_blocks`; `swin_sizes` registers it), `adaptive_cvt`, `adaptive_mvitv2`: the
  adaptive ones, the last with A-RPE;
- `features`: their stages for dense tasks;
- `unpooling`, `upernet`: a decoder that puts features back, for segmentation;
- `conversion`: from a plain model to its adaptive one, and a check that it is invariant.
"""
