"""An erratum of the position paper: its P-SHAP of CAPE is rounding noise (Appx. F, Figure 4(b)).

Where the authors' code exchanges CAPE's embeddings, it puts the stored sum of content and
sinusoids, of one image, in the place of the tokens (`forward_fixed_pos_emb` of
`models/vit_modeling.py` sets it, and `forward` returns it). No image is read any more, and a
permutation reorders tokens that a ViT with mean pooling sees as a set.
"""

import torch

from vitrail.measures.position_shap.shapley import shapley


def coalitions(model, images):
    """Logits (B, classes) of v(N), v(I), v(P) and v(0), the other images being the background."""
    permutation = torch.stack([torch.randperm(model.positions) for _ in images])
    others = images.roll(1, 0)
    shown = ((images, None), (images, permutation), (others, None), (others, permutation))
    return [model(*given).detach() for given in shown]


def test_by_the_published_path_cape_does_not_see_the_image_and_both_shapley_values_are_rounding(
    scrambled, images, monkeypatch
):
    model = scrambled("cape")
    both, image, position, _ = coalitions(model, images)
    assert all((both - other).abs().amin() > 1e-4 for other in (image, position))
    stored = model.pos_embed.add(model.patch_embed(images[:1]).flatten(2).mT, None)

    def published(x, permutation):
        rows = stored.expand(len(x), -1, -1)
        return rows if permutation is None else rows.take_along_dim(permutation[..., None], 1)

    monkeypatch.setattr(model.pos_embed, "add", published)
    both, image, position, none = coalitions(model, images)
    assert torch.equal(both[0], both[1])  # of two images
    assert not torch.equal(images[0], images[1])
    for value in shapley(both, image, position, none):
        assert value.abs().amax() < 1e-13 * both.abs().amax()
