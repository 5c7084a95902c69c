"""Products against sums over an index, attention against its definition."""

from __future__ import annotations

import math

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.kernels.table.checks import Draw, Run, check, normal, shape_of


@check("matmul")
def _matmul(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    batch, rows, inner, columns = shape_of(draw, 4)
    left, right, sum_over = draw(
        st.sampled_from(
            [
                ((rows, inner), (inner, columns), "ik,kj->ij"),
                ((batch, rows, inner), (batch, inner, columns), "bik,bkj->bij"),
                ((batch, rows, inner), (inner, columns), "bik,kj->bij"),
                ((inner,), (inner, columns), "k,kj->j"),
                ((batch, rows, inner), (inner,), "bik,k->bi"),
                ((inner,), (inner,), "k,k->"),
            ]
        )
    )
    x, y = normal(draw, *left), normal(draw, *right)
    expected = torch.einsum(sum_over, x, y)
    return run({"out_dtype": draw(st.sampled_from(["", "void"]))}, x, y), expected


@check("einsum")
def _einsum(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    rows, inner, columns = shape_of(draw, 3)
    x, y = normal(draw, rows, inner), normal(draw, inner, columns)
    return run({"subscripts": "ik,kj->ji"}, x, y), (x[:, :, None] * y).sum(1).T


@check("outer")
def _outer(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, y = (normal(draw, size) for size in shape_of(draw, 2))
    return run({}, x, y), x[:, None] * y


def _attention(draw: Draw, run: Run, biased: bool) -> tuple[Tensor, Tensor]:
    batch, heads, features, own = shape_of(draw, 4)
    rows, columns = shape_of(draw, 2)
    query, key = normal(draw, batch, rows, heads, features), normal(draw, batch, columns, heads, features)
    value = normal(draw, batch, columns, heads, own)
    scale, causal = draw(st.sampled_from([None, 0.5, 1.0])), draw(st.sampled_from([None, "TopLeft", "BottomRight"]))
    scores = torch.einsum("bqhf,bkhf->bhqk", query, key) * (1 / math.sqrt(features) if scale is None else scale)
    bias = []
    if biased or draw(st.booleans()):
        shape = draw(st.sampled_from([(batch, heads, rows, columns), (batch, 1, rows, columns), (1, 1, 1, columns)]))
        bias = [normal(draw, *shape)]
        scores = scores + bias[0]
    if causal is not None:
        offset = 0 if causal == "TopLeft" else abs(rows - columns)
        allowed = torch.arange(columns) <= torch.arange(rows)[:, None] + offset
        scores = scores.masked_fill(~allowed, -math.inf)
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    weights = weights / weights.sum(-1, keepdim=True)
    attributes = {"scale": scale, "causal_mask": causal, "window_size": None}
    return run(attributes, query, key, value, *bias), torch.einsum("bhqk,bkhf->bqhf", weights, value)


@check("nn.attention")
def _attention_alone(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    return _attention(draw, run, biased=False)


@check("nn.attention_bias")
def _attention_bias(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    return _attention(draw, run, biased=True)
