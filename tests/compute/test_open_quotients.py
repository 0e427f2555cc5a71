"""Quotients and remainders by sizes that a task leaves open: proved to stay inside by their bounds."""

from __future__ import annotations

import random
from itertools import product

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.elaborate.bindings import Bound, OpenRange
from tensorc_dsl.ir.sizes import bind
from tests.compute.native import everywhere
from tests.compute.texts import build, codes

M = OpenRange(1, 40)


def text(read: str, shape: str, size: str, sizes: str = "f32[M], B: f32[N]") -> str:
    return f"compute f(X: f32[{shape}], A: {sizes}) -> Y: f32[{size}] {{ Y[i] = {read} + A[0] * 0.0 + B[0] * 0.0 }}"


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("read", "shape", "size"),
    [
        ("X[i % M]", "M", "N"),
        ("X[i % M]", "M", "M * 3"),
        ("X[i % M, i / M]", "M, 3", "M * 3"),
        ("X[(i + 5) % M]", "M", "N"),
        ("X[(i - 5) % M]", "M", "N"),
        ("X[i % (M * 2)]", "M * 2", "N"),
        ("X[i % (M * 2) / 2]", "M", "N"),
        ("X[i % M + i % 3]", "M + 2", "N"),
        ("X[M - 1 - i % M]", "M", "N"),
        ("X[i / M]", "N", "N"),
        ("X[i / M]", "N", "M * N"),
        ("X[i / M % N]", "N", "M * N * 2"),
        ("X[i % M, i / M % N, i / (M * N)]", "M, N, 2", "M * N * 2"),
        ("X[(i + M) / M]", "4", "M * 3"),
        ("X[min(i, M - 1)]", "M", "N"),
        ("X[max(min(i - 3, M - 1), 0)]", "M", "N"),
        ("X[i % 4 * M]", "M * 4", "N"),
        ("X[i % 2 * M + i / 2 % M]", "M * 2", "N"),
        ("X[i / M % 3 * M + i % M]", "M * 3", "N"),
        ("X[(i % M) * (i % N)]", "M * N", "M"),
        ("(X[i % M] if i % M < 4 else 0.0)", "4", "N"),
        ("(X[i % M - 1] if i % M >= 1 else 0.0)", "M", "N"),
        ("X[clamp(i, 0, M - 1) % M]", "M", "N"),
    ],
)
def test_they_are_inside_and_right(read: str, shape: str, size: str) -> None:
    source = text(read, shape, size)
    sizes: dict[str, Bound] = {"M": M, "N": OpenRange(2, 30)}
    p = build(source, **sizes)
    for m, n in ((1, 2), (3, 7), (7, 3), (40, 5)):
        bound = bind(p, {"M": m, "N": n})
        assert everywhere(bound, seed=m).keys() == {"Y"}
    assert build(source, M=M, N=9)


@pytest.mark.parametrize(
    ("read", "shape", "size"),
    [
        ("X[i % M + 1]", "M", "N"),
        ("X[i % (M + 1)]", "M", "N"),
        ("X[i % M - 1]", "M", "N"),
        ("X[i / M]", "2", "M * 3"),
        ("X[(i - 1) / M]", "3", "M * 3"),
        ("X[i / M + 1]", "N", "M * N"),
        ("X[i % M * 2]", "M", "N"),
    ],
)
def test_what_may_leave_is_refused(read: str, shape: str, size: str) -> None:
    assert codes(text(read, shape, size), M=M, N=OpenRange(2, 30)) in (["E0411"], ["E0412"])


def _random(rng: random.Random, depth: int) -> str:
    if depth == 0:
        return rng.choice(["i", "j", "1", "M", "N", "i", "j"])
    a, b = _random(rng, depth - 1), _random(rng, depth - 1)
    by = rng.choice(["M", "N", "(M * 2)", "(M * N)", "2", "(M + 1)"])
    return rng.choice(
        [f"({a} + {b})", f"({a} - {b})", f"({a} * 2)", f"({a} % {by})", f"({a} / {by})", f"min({a}, {b})"]
    )


def test_what_is_taken_stays_inside_for_every_size() -> None:
    """Random subscripts: those that are proved are tried at all indices for some sizes."""
    rng = random.Random(1)
    taken = 0
    for _ in range(250):
        read, shape = _random(rng, rng.choice([1, 2, 3])), rng.choice(["M", "N", "M * N", "2 * M", "M + N", "3"])
        extents = rng.choice([("M", "N"), ("M * N", "N"), ("3 * M", "M * 2"), ("M", "4")])
        source = (
            f"compute f(X: f32[{shape}], A: f32[M], B: f32[N]) -> Y: f32[{', '.join(extents)}]"
            f" {{ Y[i, j] = X[{read}] }}"
        )
        try:
            build(source, M=OpenRange(1, 9), N=OpenRange(1, 9))
        except TschedError:
            continue
        taken += 1
        code = [compile(x.replace("/", "//"), "x", "eval") for x in (read, shape, *extents)]
        for m, n in ((1, 1), (1, 5), (5, 1), (3, 4), (9, 2), (2, 9)):
            sizes = {"M": m, "N": n, "min": min}
            most, *ends = (eval(c, sizes) for c in code[1:])
            for i, j in product(*map(range, ends)):
                assert 0 <= eval(code[0], {**sizes, "i": i, "j": j}) < most, (source, m, n, i, j)
    assert taken > 40
