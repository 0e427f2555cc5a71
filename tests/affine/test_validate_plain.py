"""Simplified maps are equal to the originals; questions about maps with too many divisions are refused."""

from __future__ import annotations

from itertools import pairwise

import islpy as isl
import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.proof.equivalence import flow as validate_plain
from tensorc_dsl.proof.equivalence.flow import divisions, joined, plain, within
from tensorc_dsl.proof.equivalence.validate import Unproved, Valid, validate
from tensorc_dsl.proof.sets import isl as limits

LAYOUT = "{{ [i, j] -> [2*floor(i/2) + j, i mod 2] : 0 <= i < {n} and 0 <= j < 2 }}"


def through(layout: isl.Map) -> isl.Map:
    """From what reads an element to what has written it; `lexmax` would make that plain too, at a price."""
    return layout.apply_range(layout.reverse())


@pytest.mark.parametrize("n", [1, 2, 5, 64])
def test_a_copy_through_a_layout_is_a_copy(n: int) -> None:
    m = through(isl.Map(LAYOUT.format(n=n)))
    assert plain(m).is_equal(m)
    assert divisions(plain(m)) == 0


@pytest.mark.parametrize(
    "text",
    [
        "{ [i] -> [floor(i/3), i mod 3] : 0 <= i < 7 }",  # what divides stays
        "{ [i] -> [j] : 3*floor(i/3) <= j <= i and 2*floor(j/2) >= i - 1 and 0 <= i < 9 }",  # several results
        "{ [i, j] -> [i, j] : exists (e, f: i = 2e and j = 3f) and 0 <= i, j < 20 }",  # a domain with holes
        "{ [i] -> [i] : exists (e, f: i = 4e and i = 6f) and 0 <= i < 100; [i] -> [i + 1] : i = 3 }",  # two pieces
        "[M] -> { [i, j] -> [i, j] : exists (e, f: 2e <= i <= 2e + 1 and 3f <= j < 3f + 2) and 0 <= i, j < M }",
        "{ [i] -> [i] : false }",
        # The affine hull of a piece, asked of the piece, changes the piece: an error of isl.
        "{ [i, j] -> [k] : (1 + 3j + 3*floor((-j)/3) + 3*floor((1 + j)/3)) mod 44 = k and 46*floor((i-1)/46) >= i - 23 }",
    ],
)
def test_the_map_is_the_same(text: str) -> None:
    m = isl.Map(text)
    found = plain(m)
    assert found.is_equal(isl.Map(text))
    assert m.is_equal(isl.Map(text))
    assert divisions(found) <= divisions(m)


def test_pieces_stay_where_isl_cannot_join_them(monkeypatch: pytest.MonkeyPatch) -> None:
    m = isl.Map("{ [i] -> [i] : 0 <= i < 5; [i] -> [i] : 5 <= i < 9 }")
    assert joined(m).n_basic_map() == 1
    with limits.bounded():
        monkeypatch.setattr(limits, "OPERATIONS", 1)
        assert joined(m).n_basic_map() == 2
        assert not within(m, m)
        monkeypatch.undo()
        assert within(m, joined(m))


COPIES = """
program p(A: f32[{n}, 2], B: f32[{n}, 2]) {{
{buffers}
{blocks}
}}
"""


def copies(n: int, times: int) -> str:
    """A to B through that many buffers, each of another layout that mixes the digits of both subscripts."""
    at = ["A[vi, vj]"]
    at += [
        f"T{k}[vi / 2 * 2 + vj, vi % 2]" if k % 2 else f"T{k}[vj, vi / 4, (vi % 4 + vj * 2) % 4]" for k in range(times)
    ]
    at.append("B[vi, vj]")
    half, quarter = (n + 1) // 2 * 2, (n + 3) // 4
    buffers = [f"buffer T{k}: f32[{half}, 2]" if k % 2 else f"buffer T{k}: f32[2, {quarter}, 4]" for k in range(times)]
    blocks = [
        f"for i{k} in {n}, j{k} in 2 {{ block C{k} {{ spatial vi in {n} = i{k}; spatial vj in 2 = j{k}\n{b} = {a} }} }}"
        for k, (a, b) in enumerate(pairwise(at))
    ]
    return COPIES.format(n=n, buffers="\n".join(buffers), blocks="\n".join(blocks))


@pytest.mark.parametrize("n", [5, 16, 37])
def test_a_chain_of_copies_through_layouts_is_proved(n: int) -> None:
    plain_copy = parse_program(Source("p", copies(n, 0)))
    assert isinstance(validate(plain_copy, parse_program(Source("p", copies(n, 6)))), Valid)


def test_what_is_too_intricate_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate_plain, "INTRICATE", -1)
    program = parse_program(Source("p", copies(5, 1)))
    report = validate(program, program)
    assert isinstance(report, Unproved)
    assert "too many divisions" in report.diagnostic.message
