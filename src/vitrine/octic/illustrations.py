"""The paper's Figures 2, 3, 5 and 6, measured on its own layers.

The paper draws what the octic group does to layers, blocks, images and filters. Here a real linear
layer, real models and a real photograph are asked, and the figures draw what they answer.
"""

from __future__ import annotations

from vitrine.measures.context import Context, Trained, Values

# The six filter banks of a patch embedding (Fig. 6): copy 1 and 2 of E have one bank each.
BANKS = ("A1", "A2", "B1", "B2", "E copy 1", "E copy 2")
# What a block is made of, in the order in which features pass through it (Fig. 3).
STAGES = ("norm1", "qkv", "attention", "proj", "norm2", "fc1", "GELU", "fc2")


def intertwiner(context: Context, channels: int = 32) -> Values:
    """Write an octic linear layer as a dense matrix, in both bases (Fig. 2, Sec. 3.1).

    Args:
        context: its seed initialises the layer.
        channels: C of the layer, C to C.

    Returns:
        ``<basis>/matrix``: ``(C, C)``, rows outputs; ``<basis>/nonzero`` and ``<basis>/share``:
        its entries that are not zero, in number and in percent; ``<basis>/multiplications``: of a
        token, as many; ``<basis>/parameters``: free numbers behind them; ``<basis>/error``: the
        largest entry of W rho(g) - rho(g) W over the group, relative to W's. `basis` is isotypic
        or regular. ``fewer/multiplications`` and ``fewer/parameters``: C x C over the isotypic
        basis's (16/3 and 8).
    """


def block_planes(
    context: Context, models: dict[str, dict[str, object]], batch_size: int = 1
) -> Values:
    """Follow the features through octic models, and through an octic block (Fig. 3).

    The models are built and run on the meta device: no numbers, only shapes.

    Args:
        context: not used: nothing is random.
        models: fields of `vitrine.measures.architecture.Architecture` by label, such as d8, i8 and
            h8; the block is the first one's.
        batch_size: of the images.

    Returns:
        ``<label>/octic blocks``, ``<label>/standard blocks``, ``<label>/tokens``,
        ``<label>/channels`` (C) and ``<label>/head`` (inputs of the classifier); of the block
        ``<stage>/shape``: of what the stage returns, plane-major ``(8, B, N, c)``;
        ``<stage>/channels``: its last number; ``<stage>/parameters``; ``<stage>/share``: percent
        that these are of the plain ViT's stage. `stage` is one of `STAGES`.
    """


def cayley(context: Context, image_size: int = 96, patch_size: int = 16) -> Values:
    """Transform a photograph and its octic features by all eight elements (Fig. 5).

    Args:
        context: its seed initialises the patch embedding's filters.
        image_size: pixels on a side.
        patch_size: pixels on a side of a patch.

    Returns:
        For each of the eight elements ``<element>/pixels``: ``(H, W, 3)`` bytes of the transformed
        photograph; ``<element>/features``: ``(8, G, G)``, its planes on the grid of patches;
        ``<element>/error``: the largest difference between these and the transformed features of
        the photograph, relative to the largest feature; ``<element>/change``: the same difference
        where the features are not transformed. ``filters``: ``(8, p, p, 3)``; ``patch``: p.
    """


def learned_filters(trained: Trained, components: int = 16) -> Values:
    """Take the principal components of the filters that a D8 model learned (Fig. 6, App. C.1).

    Args:
        trained: a model whose ``patch_embed`` is an `OcticPatchEmbed`.
        components: of each bank, fewer where it has fewer filters.

    Returns:
        For each of `BANKS` ``<bank>/components``: ``(n, p, p, 3)``, each scaled to [-1, 1];
        ``<bank>/explained``: percent of the filters' variance that they hold; ``<bank>/first``:
        percent that the first holds.
    """
