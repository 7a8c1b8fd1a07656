"""What is measured of any model: functions of a model and images, whose results are plain numbers.

- `accuracy`, `consistency` (shift, Sec. 5.1, Sec. 5.2), `position_shap` (position, Sec. 3);
- `equivariance`, `invariance`: how far a module is from commuting with a group;
- `selection_margins`: by how much a shift-equivariant model's choices are decided, a certificate;
- `flops`: operations of a forward pass;
- `outputs`, `loading`, `shifts`, `resume`, `permutable`: what these have in common.
"""
