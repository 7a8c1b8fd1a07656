"""Measures of any model: functions of a model and images that return plain numbers.

- `accuracy`, `consistency` (shift, Sec. 5.1, Sec. 5.2), `position_shap` (position, Sec. 3);
- `equivariance`, `invariance`: how far a module is from commuting with a group;
- `selection_margins`: certifies that rounding cannot change a shift-equivariant model's choices;
- `flops`: operations of a forward pass;
- `outputs`, `loading`, `shifts`, `resume`, `permutable`: functions that these share.
"""
