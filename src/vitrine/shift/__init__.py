"""Truly shift-equivariant Vision Transformers (Rojas-Gomez et al., CVPR 2024).

A strided operation of a ViT lays a fixed grid over its input. The paper lays the grid where the
input itself says, so that a circular shift of the input moves the grid along:

- `polyphase`, `frame`: per-sample rolls and phases, and where they put the tokens in the image;
- `tokenization`, `windows`, `merging`, `position`: the paper's four modules (Sec. 4);
- `swin`, `cvt`, `mvitv2`: the backbones, plain where timm lacks them, and adaptive;
- `conversion`: from a plain model to its adaptive one; `equivariance`: the check.
"""
