"""Operations are counted as the papers count them, and as torch does."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from vitrail.measures.flops import Operations, count

T, C, HEADS = 5, 16, 2


def counted(forward, *shapes):
    """Count a function of tensors as a model."""

    class Model(nn.Module):
        def forward(self, *inputs):
            return forward(*inputs)

    return count(Model(), *(torch.empty(shape, device="meta") for shape in shapes))


@pytest.mark.parametrize(
    ("forward", "elementwise"),
    [
        (lambda x: 2 * x + x.neg(), 3 * T * C),
        (lambda x: x.clone().mul_(2).add_(x), 2 * T * C),
        (functional.gelu, 8 * T * C),
        (lambda x: x.softmax(-1), 5 * T * C),
        (lambda x: functional.layer_norm(x, [C]), 4 * T * C),
        (lambda x: functional.layer_norm(x, [C], x[0], x[0]), 5 * T * C),
        (lambda x: x.mean(-1), T * C),
        (lambda x: x.sum(-1).rsqrt(), T * C + 4 * T),
        (lambda x: torch.cat([x.flip(0), x.view(T, C)]).transpose(0, 1), 0),
    ],
)
def test_a_function_of_elements_has_its_price(forward, elementwise):
    assert counted(forward, (T, C)) == Operations(elementwise=elementwise)


def test_a_bias_within_a_product_is_free():
    assert counted(lambda x, w, b: functional.linear(x, w, b), (T, C), (3, C), (3,)) == (
        Operations(products=T * C * 3)
    )


def test_fused_and_explicit_attention_differ_by_scaling_and_softmax():
    def explicit(q, k, v):
        return (C**-0.5 * q @ k.mT).softmax(-1) @ v

    shapes = [(1, HEADS, T, C)] * 3
    fused = counted(functional.scaled_dot_product_attention, *shapes)
    written = counted(explicit, *shapes)
    assert fused.products == written.products == 2 * HEADS * T**2 * C
    assert (fused.elementwise, written.attention) == (0, 0)
    assert fused.macs + fused.attention == written.macs


def test_attention_is_counted_where_values_have_another_width_than_keys():
    def attend_and_add(q, k, v):
        return functional.scaled_dot_product_attention(q, k, v) + v

    wide, narrow = (1, HEADS, T, 2 * C), (1, HEADS, T, C)
    found = counted(attend_and_add, wide, wide, narrow)
    assert found.products == HEADS * T**2 * (2 * C + C)


def test_a_module_that_says_what_it_counts_as_is_believed_and_not_run():
    class Fourier(nn.Module):
        def operations(self, x):
            return 4 * x.numel()

        def forward(self, x):
            raise AssertionError

    model = nn.Sequential(nn.Linear(C, C), Fourier())
    assert count(model.to("meta"), torch.empty(T, C, device="meta")) == (
        Operations(products=T * C**2, elementwise=4 * T * C)
    )
