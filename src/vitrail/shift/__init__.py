"""Truly shift-equivariant Vision Transformers (Rojas-Gomez et al., CVPR 2024).

A strided operation of a ViT lays a fixed grid over its input. The paper takes the grid whose tokens
have the largest energy, so that a circular shift of the input also shifts the grid.

Read first examples/a_swin_in_one_file.py: all of A-Swin, with the numbers of the paper's equations.
Then read `swin`. Three other examples have one method each in one file: a_cvt_in_one_file.py,
a_mvitv2_in_one_file.py (with A-RPE) and adaptive_unpooling_in_one_file.py. docs/equations/shift.md
lists the code of each equation of the paper. Here are:

- `swin`, `adaptive_cvt`, `adaptive_mvitv2`: the adaptive models, the last with A-RPE;
- `cvt`, `mvitv2`: plain backbones that timm lacks; they do not use the adaptive modules;
- `selection`: how grids and windows are chosen, a module that a model holds (shift, Sec. 4), by the
  scores of `energies` and the rules of `polyphase`, which has the polyphase components and ties;
- `certificate`: by how much rounding can move these scores, which certifies a choice;
- `geometry`: where tokens sit in the image, and how features are put back (unpooling);
- `features`: the stages of a model for dense tasks; `upernet`: a decoder on them, for segmentation;
- `conversion`: converts a plain model to its adaptive one, and checks that this is invariant.
"""
