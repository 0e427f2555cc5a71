"""`feasible` and `extremes` against brute force, and the work of a question as kernels of GPUs ask it."""

from __future__ import annotations

from functools import partial, reduce
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc_dsl.ir.dtypes import I32
from tensorc_dsl.ir.expr import Binary, Compare, Dim, Expr, Load, Logic, Not, Var, index
from tensorc_dsl.proof.sets import isl, sets
from tensorc_dsl.proof.sets.sets import NotAffine, extremes, feasible
from tests.affine.test_simplify import value
from tests.examples import examples

EXTENTS: dict[str, int] = {"i": 5, "j": 7, "k": 4}
COMPARISONS = ("<", "<=", "==", "!=", ">", ">=")


def terms() -> st.SearchStrategy[Expr]:
    """Index expressions with quotients and remainders inside of each other, also of negative numbers, and `xor`."""
    leaves = st.sampled_from([*(Var(n) for n in EXTENTS), index(3), index(-2)])

    def larger(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        divided = st.builds(Binary, st.sampled_from(["/", "%"]), inner, st.integers(1, 6).map(index))
        joined = st.builds(Binary, st.sampled_from(["+", "-", "min", "max"]), inner, inner)
        bits = st.builds(lambda e: Binary("xor", Binary("%", Var("i"), index(4)), Binary("%", e, index(8))), inner)
        return st.one_of(divided, divided, joined, bits)

    return st.recursive(leaves, larger, max_leaves=5)


def conditions() -> st.SearchStrategy[Expr]:
    """Comparisons, also joined by `and`, `or` and `not`."""
    plain = st.builds(Compare, st.sampled_from(COMPARISONS), terms(), terms())
    return st.one_of(plain, plain, plain.map(Not), st.builds(Logic, st.sampled_from(["and", "or"]), plain, plain))


@settings(max_examples=examples(40))
@given(st.lists(conditions(), max_size=4))
def test_feasible_is_what_brute_force_finds(given_: list[Expr]) -> None:
    points = (dict(zip(EXTENTS, p, strict=True)) for p in product(*map(range, EXTENTS.values())))
    wanted = any(all(value(c, p) for c in given_) for p in points)
    assert feasible({v: index(e) for v, e in EXTENTS.items()}, given_) == wanted


@settings(max_examples=examples(60))
@given(terms(), st.lists(conditions(), max_size=3))
def test_extremes_are_what_brute_force_finds(e: Expr, given_: list[Expr]) -> None:
    points = (dict(zip(EXTENTS, p, strict=True)) for p in product(*map(range, EXTENTS.values())))
    found = [value(e, p) for p in points if all(value(c, p) for c in given_)]
    wanted = (min(found), max(found)) if found else None
    assert extremes(e, {v: (0, n - 1) for v, n in EXTENTS.items()}, given_) == wanted


def sums() -> st.SearchStrategy[Expr]:
    """Sums of multiples of some variables, which may cancel."""
    term = st.builds(lambda v, c: Binary("*", Var(v), index(c)), st.sampled_from(list(EXTENTS)), st.integers(-3, 3))
    return st.lists(term, min_size=1, max_size=4).map(lambda ts: reduce(partial(Binary, "+"), ts, index(1)))


@settings(max_examples=examples(200))
@given(sums(), st.lists(st.builds(Compare, st.sampled_from(COMPARISONS), sums(), sums()), max_size=3))
def test_extremes_of_sums_are_what_brute_force_finds(e: Expr, given_: list[Expr]) -> None:
    points = (dict(zip(EXTENTS, p, strict=True)) for p in product(*map(range, EXTENTS.values())))
    found = [value(e, p) for p in points if all(value(c, p) for c in given_)]
    wanted = (min(found), max(found)) if found else None
    assert extremes(e, {v: (0, n - 1) for v, n in EXTENTS.items()}, given_) == wanted


def test_guards_that_say_nothing_of_a_sum_are_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Expr] = []
    monkeypatch.setattr(sets, "_extremes", lambda e, *_: asked.append(e))
    i, j, k = map(Var, "ijk")
    block = Binary("*", j, index(8))
    own = Binary("-", Binary("+", block, i), block)
    ranges = {"i": (0, 7), "j": (0, 4), "k": (1, 5)}
    assert extremes(own, ranges, [Compare("<", Binary("+", block, k), index(37))]) == (0, 7)
    assert not asked
    # One that does, or does by way of another, or may hold nowhere, is.
    extremes(own, ranges, [Compare("<", Binary("+", block, i), index(37))])
    extremes(own, ranges, [Compare("<", i, k), Compare("<", k, j)])
    extremes(own, ranges, [Compare("<", Binary("+", k, j), index(1))])
    assert len(asked) == 3


def test_a_quotient_of_an_open_size_is_known_for_all_sizes() -> None:
    m = Dim("M", 1, 9)
    half, rest = Binary("/", m, index(2)), Binary("%", m, index(2))
    twice = Binary("+", half, half)
    assert feasible({}, [Compare("!=", twice, m)])
    assert not feasible({}, [Compare("!=", Binary("+", twice, rest), m)])
    assert not feasible({"i": half}, [Compare(">", Var("i"), index(3))])


def test_what_is_not_affine_is_not_below_a_quotient_either() -> None:
    data = Load("A", (Var("i"),), I32)
    with pytest.raises(NotAffine):
        feasible({"i": index(4)}, [Compare("==", Binary("/", data, index(2)), index(0))])


def test_a_question_about_two_threads_is_a_few_operations() -> None:
    """Two threads of a convolution copy its padded input and read it: isl counts its operations, alike on each machine."""
    context = isl.DEFAULT_CONTEXT
    extents, given_ = convolution()
    around = context.get_max_operations()
    context.set_max_operations(130_000)  # it takes 95,000; with quotients as isl reads them, and `!=` as one, 198,000
    context.reset_operations()
    try:
        assert not feasible(extents, given_)
    finally:
        context.set_max_operations(around)
        context.reset_operations()


def convolution() -> tuple[dict[str, Expr], list[Expr]]:
    """Whether a thread reads, in the round of the first copy, what another one copies for the next round: it does not."""
    sizes = {
        "t": 112, "s": 112, "b": 16, "h": 3, "g": 3, "c": 4, "e": 4, "a": 168, "d": 2, "o": 2, "p": 2, "kd": 3, "kw": 3,
        "ci": 2, "cj": 2, "w": 14,
    }  # fmt: skip
    t, s, b, h, g, c, e, a, d, o, p, kd, kw, ci, cj, w = map(Var, sizes)

    def total(*parts: tuple[Expr, int]) -> Expr:
        out: Expr = index(0)
        for part, factor in parts:
            out = Binary("+", out, Binary("*", part, index(factor)))
        return out

    def over(whole: Expr, n: int) -> Expr:
        return Binary("/", whole, index(n))

    def rest(whole: Expr, n: int) -> Expr:
        return Binary("%", whole, index(n))

    copied = total((rest(total((e, 1), (index(1), 1)), 2), 18816), (a, 112), (s, 1))
    seen = total(
        (rest(c, 2), 18816), (d, 6272), (kd, 3136), (over(t, 56), 3136), (o, 1568), (rest(over(t, 8), 7), 224), (h, 112),
        (p, 112), (rest(over(t, 4), 2), 56), (kw, 4), (w, 4), (ci, 2), (cj, 1), (index(-116), 1),
    )  # fmt: skip
    rows = [
        (total((over(b, 8), 4), (over(a, 28), 1)), 9),
        (total((kd, 1), (over(b, 8), 4), (d, 2), (over(t, 56), 1)), 9),
        (total((h, 1), (o, 14), (rest(over(t, 8), 7), 2), (p, 1)), 29),
        (total((kw, 1), (rest(over(t, 4), 2), 14), (w, 1)), 29),
    ]
    inside = [x for row, n in rows for x in (Compare(">=", row, index(1)), Compare("<", row, index(n)))]
    given_: list[Expr] = [Compare("!=", s, t), Compare("==", copied, seen), Compare("<", e, index(3)), *inside]
    given_ += [Compare("==", g, h), Compare("==", e, c)]
    return {v: index(n) for v, n in sizes.items()}, given_
