"""Loops as digits: every iteration gives the same values in the same order; schedules that once took days are proved."""

from __future__ import annotations

from itertools import product

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.expr import Binary, Compare, Const, Expr, Var
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Block, For, Program, walk
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.proof.equivalence import loop_encodings
from tensorc_dsl.proof.equivalence.loop_encodings import digits_around, digits_of, in_digits
from tensorc_dsl.proof.equivalence.validate import Invalid, Unproved, Valid, validate
from tensorc_dsl.proof.sets import isl


def program(text: str) -> Program:
    made = parse_program(Source("test", text))
    verify(made)
    return made


def value(e: Expr, known: dict[str, int]) -> int:
    match e:
        case Var(name=name):
            return known[name]
        case Const(value=int(v)):
            return v
        case Binary(op=op, lhs=a, rhs=b) | Compare(op=op, lhs=a, rhs=b):
            x, y = value(a, known), value(b, known)
            return (
                {"+": x + y, "-": x - y, "*": x * y, "<": x < y}.get(op, 0)
                if op in "+-*<"
                else (x // y if op == "/" else x % y)
            )
        case _:
            raise AssertionError(e)


def size(e: Expr) -> int:
    return value(e, {})


NESTS = [
    ("for i in 5, j in 8", "(i * 8 + j) / 13; (i * 8 + j) % 13", 2),
    ("for i in 5, j in 8, l in 3", "(i * 24 + j * 3 + l) / 7 % 4; (i * 3 + j * 3 + l) % 7; i * 24 + j * 3 + l + 2", 3),
    ("for i in 5, j in 8, l in 3", "(i * 8 + j) / 13 + l; (i * 8 + j) % 13 * 3 + l", 3),
    ("for i in 5, u in 1, j in 8", "(i * 8 + j) / 13 + u; (i * 8 + j) % 13 + u / 2", 2),
    ("for i in 4, j in 6", "(i * 6 + j) / 4; i * 6 + j", 2),
    ("for i in 4, j in 6", "(i * 6 + j) / 12; i % 2 + j", 3),
    ("for i in 4, j in 6", "(i * 6 + j) / 5; i + j", 2),  # cut at 5 and at 6: each loop for itself
    ("for i in 4, j in 6", "(i * 6 + j + 1) / 5; (i * 5 + j) / 7", 2),
    ("for i in 4, j in 6", "(i * 12 + j * 2) / 5; 3 - i - j * 2 + 20", 2),
    ("for i in 30", "i / 8; i % 8; i / 2 % 2", 4),
    ("for i in 30", "i / 8; i % 3", 1),
]


@pytest.mark.parametrize(("loops", "values", "digits"), NESTS)
def test_digits_give_what_the_loops_give_in_the_same_order(loops: str, values: str, digits: int) -> None:
    bindings = values.split("; ")
    iters = "\n".join(f"spatial v{k} in 99 = {e}" for k, e in enumerate(bindings))
    subscripts = ", ".join(f"v{k}" for k in range(len(bindings)))
    p = program(f"program p(A: f32[{', '.join('99' for _ in bindings)}]) {{ {loops} {{ block b {{\n{iters}\n"
                f"A[{subscripts}] = 1.0 }} }} }}")  # fmt: skip
    ((around, b),) = [(around, s) for around, s in walk(p.body) if isinstance(s, Block)]
    assert all(isinstance(x, For) for x in around)
    known = digits_of(p)
    numbers = digits_around(around, known)
    found = [d for n in numbers for d in n.digits]
    assert len(found) == digits

    def runs(names: list[str], extents: list[int], exprs: list[Expr], within: list[Expr]) -> list[list[int]]:
        points = [dict(zip(names, x, strict=True)) for x in product(*map(range, extents))]
        return [[value(e, x) for e in exprs] for x in points if all(value(c, x) for c in within)]

    exprs = [it.binding for it in b.iters]
    before = runs([x.var for x in around], [size(x.extent) for x in around], exprs, [])
    after = runs(
        [d.name for d in found], [size(d.extent) for d in found],
        [in_digits(e, known) for e in exprs], [c for n in numbers for c in n.within],
    )  # fmt: skip
    assert before == after


COPY = """
program copy(A: f32[5, 13], C: f32[5, 13]) {
    for i in 5, j in 13 { block C { spatial vi in 5 = i; spatial vj in 13 = j
        C[vi, vj] = A[vi, vj] } }
}
"""

SHARED = """
program copy(A: f32[5, 13], C: f32[5, 13]) {
    buffer S: f32[%s]
    %s i in 9 {
        %s j in 8 {
            block S { spatial v in 72 = i * 8 + j; where i * 8 + j < 65
                S[%s] = A[v / 13, v %% 13] }
            block C { spatial v0 in 5 = (i * 8 + j) / 13; spatial v1 in 13 = (i * 8 + j) %% 13; where i * 8 + j < 65
                C[v0, v1] = S[%s] }
        }
    }
}
"""


@pytest.mark.parametrize(
    ("outer", "inner", "extent", "at", "racing"),
    [
        ("for", "for", 1, "0", ""),
        ("for", "parallel for", 1, "0", "j"),
        ("parallel for", "for", 1, "0", "i"),
        ("for", "parallel for", 8, "j", ""),
        ("parallel for", "for", 8, "j", "i"),
        ("parallel for", "for", 9, "i", ""),
        ("for", "parallel for", 9, "i", "j"),
        ("parallel for", "for", 5, "(i * 8 + j) / 13", "i"),
        ("for", "parallel for", 13, "(i * 8 + j) % 13", ""),
    ],
)
def test_of_loops_that_are_counted_together_those_race_that_do(
    outer: str, inner: str, extent: int, at: str, racing: str
) -> None:
    written = (
        at.replace("i * 8 + j", "v").replace("(v)", "v") if "8" in at else {"0": "0", "j": "v % 8", "i": "v / 8"}[at]
    )
    read = {"0": "0", "j": "(v0 * 13 + v1) % 8", "i": "(v0 * 13 + v1) / 8"}.get(at, "v0" if "/" in at else "v1")
    scheduled = program(SHARED % (extent, outer, inner, written, read))
    report = validate(program(COPY), scheduled)
    if racing:
        assert isinstance(report, Invalid)
        assert report.diagnostic.code == "E0802"
        assert f"loop `{racing}`" in report.diagnostic.message
    else:
        assert isinstance(report, Valid), report


CONV = """
program conv(X: f32[113, 231, 3], F: f32[3, 9, 3], Y: f32[56, 112]) {
    for h in 56, w in 112, kh in 3, kw in 9, c in 3 {
        block Y {
            spatial vh in 56 = h; spatial vw in 112 = w; reduce va in 3 = kh; reduce vb in 9 = kw; reduce vc in 3 = c
            init { Y[vh, vw] = 0.0 }
            Y[vh, vw] = Y[vh, vw] + X[vh * 2 + va, vw * 2 + vb, vc] * F[va, vb, vc]
        }
    }
}
"""

COPIED = """
program conv(X: f32[113, 231, 3], F: f32[3, 9, 3], Y: f32[56, 112]) {
    buffer S: f32[113, 231, 3] in "shared"
    bound("block.x") for h0 in 28 {
        for i in 8 {
            bound("thread.x") for j in 112 {
                vectorized for l in 4 {
                    block S {
                        spatial v0 in 113 = h0 * 4 + (i * 448 + j * 4 + l) / 693
                        spatial v1 in 231 = (i * 448 + j * 4 + l) / 3 % 231
                        spatial v2 in 3 = (i + j + l) % 3
                        where i * 448 + j * 4 + l < 3465
                        S[v0, v1, v2] = X[v0, v1, v2]
                    }
                }
            }
        }
        bound("thread.x") for w in 112 {
            for h1 in 2, kh in 3, kw in 9, c in 3 {
                block Y {
                    spatial vh in 56 = h0 * 2 + h1; spatial vw in 112 = w
                    reduce va in 3 = kh; reduce vb in 9 = kw; reduce vc in 3 = c
                    init { Y[vh, vw] = 0.0 }
                    Y[vh, vw] = Y[vh, vw] + S[vh * 2 + va, vw * 2 + vb, vc] * F[va, vb, vc]
                }
            }
        }
    }
}
"""


def _never(*_: object) -> tuple[()]:
    return ()


def test_a_copy_over_loops_of_other_sizes_takes_few_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """With each loop for itself isl did not come to an end."""
    monkeypatch.setattr(isl, "OPERATIONS", 12_000)
    original, scheduled = program(CONV), program(COPIED)
    assert isinstance(validate(original, scheduled), Valid)
    monkeypatch.setattr(loop_encodings, "_together", _never)
    report = validate(original, scheduled)
    assert isinstance(report, Unproved)
    assert "more than the operations" in report.diagnostic.message
    assert isl.DEFAULT_CONTEXT.get_max_operations() == 0


def test_a_copy_that_shifts_an_element_is_refuted() -> None:
    shifted = COPIED.replace("S[v0, v1, v2] = X[v0, v1, v2]", "S[v0, v1, v2] = X[v0, max(v1 - 1, 0), v2]")
    report = validate(program(CONV), program(shifted))
    assert isinstance(report, Invalid)
    assert report.diagnostic.code == "E0806"


def test_a_swizzle_of_a_part_of_a_loop_is_proved() -> None:
    """A digit is a variable: its text does not show how many bits it has."""
    plain = program("""program p(A: f32[7, 13], B: f32[7, 13]) {
        for i in 7, j in 13 { block B { spatial v0 in 7 = i; spatial v1 in 13 = j
            B[v0, v1] = A[v0, v1] } } }""")
    swizzled = """program p(A: f32[7, 13], B: f32[7, 13]) {
        for i in 7, j in 16 { block B { spatial v0 in 7 = i; spatial v1 in 16 = j
            where xor(j / 4, i % 4) * 4 + j % 4 < 13
            B[v0, xor(v1 / 4, v0 % 4) * 4 + v1 % 4] = A[v0, xor(v1 / 4, v0 % 4) * 4 + v1 % 4] } } }"""
    assert validate(plain, program(swizzled)) == Valid()
    assert validate(plain, program(swizzled.replace("where xor(j / 4, i % 4)", "where xor(j / 4, i / 4)"))) != Valid()
