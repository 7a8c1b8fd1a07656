"""Truly shift-equivariant Vision Transformers (Rojas-Gomez et al., CVPR 2024).

A strided operation of a ViT lays a fixed grid over its input. The paper lays the grid where the
energy of the input is largest, so that a circular shift of the input moves the grid along:

- `polyphase`: per-sample rolls and phases; `torus`: where they put the tokens in the image;
- `tokenization`: A-token and A-PMerge; `windows`: A-WSA (shift, Sec. 4);
- `cvt`, `mvitv2`: plain backbones that timm lacks; no change of the paper's modules concerns them;
- `swin`, `adaptive_cvt`, `adaptive_mvitv2`: the adaptive ones, the last with A-RPE;
- `features`: their stages for dense tasks;
- `canonicalization`: a baseline that the paper lacks;
- `equivariance`: from a plain model to its adaptive one, and a check that it is invariant.
"""
