"""Learning to Adapt to Position Bias in Vision Transformer Classifiers (Bruintjes and van Gemert).

How much position matters depends on the data. The paper measures it, by shuffling which token has
which position, and lets a model learn less of it, by a factor on its position embedding (Auto-PE):

- `embeddings`: the position embeddings that the paper compares, by name;
- `vit`: its small ViT, in which any of them can be permuted, registered with timm.

The measure, Position-SHAP, is `vitrail.measures.position_shap`, which says which of its files has
which equation (3 to 5, 7 and 8); examples/position.py applies it to two small models.
"""
