"""Learning to Adapt to Position Bias in Vision Transformer Classifiers (Bruintjes and van Gemert).

How much position matters depends on the data. The paper measures this by permuting the positions
of an image's tokens. It also lets a model learn how much position to use, by a factor on its
position embedding (Auto-PE):

- `embeddings`: the position embeddings that the paper compares, by name; `embeddings.auto` has
  Auto-PE (position, Eq. 6, Eq. 11-12);
- `vit`: the paper's small ViT, registered with timm, whose positions can be permuted.

The measure, Position-SHAP, is `vitrail.measures.position_shap`, which says which of its files has
which equation (3 to 5, 7 and 8); examples/position.py applies it to two small models.
"""
