"""Loops bound to axes, in hand-written programs: invalid kernels are refused."""

from __future__ import annotations

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program


def text(*heads: str) -> str:
    """A program whose block stands in these loops."""
    body = "block C { spatial v in 64 = 0; C[v] = 1.0 }"
    for head in reversed(heads):
        body = f"{head} {{ {body} }}"
    return f"program p(C: f32[64]) {{\n{body}\n}}\n"


@pytest.mark.parametrize(
    ("heads", "reason"),
    [
        (['bound("blocks") for i in 4'], 'there is no axis "blocks"'),
        (['bound("lane") for i in 33'], "a warp has 32 lanes, and `i` has 33 iterations"),
        (['bound("warpgroup") for i in 2', 'bound("warp") for j in 5'], "a warpgroup has 4 warps"),
        (['bound("warp") for i in 4', 'bound("warp") for j in 2'], "it is inside `i`, which is bound to it"),
        (['bound("warp") for i in 4', 'bound("warpgroup") for j in 2'], 'it is inside `i`, which is bound to "warp"'),
        (['bound("lane") for i in 4', 'bound("thread.y") for j in 2'], '"lane" counts the same threads'),
        (["for i in 4", 'bound("block.y") for j in 2'], "it is inside `i`, and a grid starts once"),
        (["for i in 4", 'bound("cluster.x") for j in 2'], "it is inside `i`, and a grid starts once"),
        (['bound("cluster.x") for i in 9'], "a cluster has up to 8 blocks, and `i` has `9` iterations"),
        (['bound("lane") for i in 4', 'bound("cluster.x") for j in 2'], 'it is inside `i`, which is bound to "lane"'),
    ],
)
def test_not_a_kernel(heads: list[str], reason: str) -> None:
    with pytest.raises(TschedError) as wrong:
        parse_program(Source("p", text(*heads)))
    (d,) = wrong.value.diagnostics
    assert d.code == "E0210"
    assert reason in d.message


@pytest.mark.parametrize(
    "heads",
    [
        ['bound("block.y") for i in 4', 'bound("block.x") for j in 4', 'bound("thread.x") for k in 96'],
        ['bound("block.x") for i in 4', 'bound("block.y") for j in 2', 'bound("warpgroup") for k in 3'],
        ['bound("warp") for i in 8', "for j in 3", 'bound("lane") for k in 32', "vectorized for l in 4"],
        ["for i in 1", 'bound("block.z") for j in 4'],
        ['bound("block.x") for i in 4', 'bound("cluster.x") for j in 2', 'bound("thread.x") for k in 96'],
        ['bound("cluster.x") for i in 8', 'bound("block.x") for j in 2'],
    ],
)
def test_a_kernel(heads: list[str]) -> None:
    p = parse_program(Source("p", text(*heads)))
    assert parse_program(Source("p", format_program(p))) == p
