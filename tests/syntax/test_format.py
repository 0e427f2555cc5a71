"""Printing and parsing are inverse."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tensorc_dsl.base.source import Source
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.format import expression_text, format_item
from tensorc_dsl.syntax.parse import parse
from tests.examples import examples
from tests.syntax.trees import EXPRS, FILES, ITEMS, format_file, parse_expr

SLOW = settings(
    deadline=None, max_examples=examples(75), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@given(EXPRS)
@SLOW
def test_an_expression_parses_back(e: tree.Expr) -> None:
    assert parse_expr(expression_text(e)) == e


@given(ITEMS)
@SLOW
def test_an_item_parses_back(item: tree.Item) -> None:
    assert parse(Source("i", format_item(item))).items == (item,)


@given(FILES)
@settings(SLOW, max_examples=examples(50))
def test_a_file_parses_back(file: tree.File) -> None:
    text = format_file(file)
    again = parse(Source("f", text))
    assert again == file
    assert format_file(again) == text


@pytest.mark.parametrize(
    "text",
    [
        "a + b * c",
        "(a + b) * c",
        "a - (b - c)",
        "a - b - c",
        "a / (b * c)",
        "-a * b",
        "-(a + b)",
        "(-a).x",
        "--a",
        "0 <= h < H and 0 <= w",
        "(a < b) == c",
        "not a and b",
        "not (a and b)",
        "(a and b) + 1",
        "a if c else b if d else e",
        "(a if c else b) if d else e",
        "1 + sum[k] A[k] * 2",
        "(sum[k] A[k]) * 2",
        "(1 + sum[k] A[k]) + 2 * sum[k, r in R + 1] a if c else b",
        "scan[t] init X[0, i] step Y[t - 1, i] + X[t, i]",
        "f(a, key=b)[0, 1].x(1)",
        "(i, j) -> (i / 4, j, i % 4)",
        "1..4096",
        "(1..2)[0]",
        "{4: 0.2, 8: -inf}",
        '"a\\"\\\\\\n\\u{0}"',
        "(sum)[k]",
        "(max)[1:]",
        "b.loops[1:-1][:n + 1][:]",
        "x[a if c else b:(for l in x {})[0]]",
        "any(for l in b.loops if l.kind == c or not l.is_open {})",
        "for l in (a if b else c) if (d if e else f) {}",
        "for l in (sum[k] a) if sum[k] b {}",
        "for l in (for m in a if b {}) if x {}",
        "[_, 14, []]",
    ],
)
def test_needed_parentheses_only(text: str) -> None:
    # `(1 + sum …) + …` needs its parentheses around the sum only.
    want = text.replace("(1 + sum[k] A[k])", "1 + (sum[k] A[k])")
    assert expression_text(parse_expr(text)) == want


FORMATTED = """\
use std.cpu
use mine.{a, b}

/// C = A · B
///
///  indented
compute conv(X: T[N, H], F: T[KH]; stride: int = 1, T: dtype = f32) -> Y: T[N, OH]
where OH = (H - KH) / stride + 1,
      ON = N
{
    let P[n, h in H + 2] = X[n, h - 1] if 1 <= h < H + 1 else 0
    Y[n, oh] = sum[kh] P[n, oh * stride + kh] * F[kh]
}

module m(b: Block, structure: str = "SSRSRS")
when b.has_reuse
{
    let tiles = for l in b.loops {
        let factors ~ sample_perfect_tile(l, parts=structure.count(l.kind)) := [4, 16]
        yield split(l, factors)
    }
    either(0.3) {
        let [_, w] = cache_write(b)
    } or(0.7) {}
    if len(tiles) > 2 {
        reorder(tiles)
    } else if true {
        (-x)
    } else {
        foo()
    }
}

space cpu for llvm {
    auto_inline
    m(structure="SSRSRS")
}

schedule blocked for conv {}

task a = conv(N=1..4096, H=4) with blocked
task b = conv(N=1)

program p(A: f32[64], C: f32) @("k", -1) {
    buffer B: f32[64] in "local"
    parallel for i in 8 @("pragma", 4) {
        for j in 8, l in 1 {
            block C {
                spatial vi in 64 = i * 8 + j
                reduce vk in 64 = k
                where i < 60
                init { C = 0.0; B[vi] = 1 }
                C = C + A[vi, vk]
            }
        }
    }
}
"""


def test_the_format_is_a_fixed_point() -> None:
    assert format_file(parse(Source("x", FORMATTED))) == FORMATTED
