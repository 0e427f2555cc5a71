"""Which sizes shapes tell, by which steps: the same for the lowering, for calls and for the code of libraries."""

from __future__ import annotations

import pytest

from tensorc_dsl.ir.expr import ONE, Binary, Dim, Expr, floordiv, index, mul, sub
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.proof.sets.constants import solve_sizes, told_by

M, N, K = (Dim(name, 1, 64) for name in "MNK")


def plus(a: Expr, b: Expr) -> Expr:
    return Binary("+", a, b)


CASES: list[tuple[list[tuple[Expr, ...]], list[str], str]] = [
    ([(M, N)], ["M = 0.0", "N = 0.1"], "MN"),
    ([(mul(M, index(2)), M)], ["M = 0.0 / 2"], "M"),
    ([(sub(mul(M, index(3)), index(4)),)], ["M = (0.0 - -4) / 3"], "M"),
    ([(sub(index(9), M),)], ["M = (0.0 - 9) / -1"], "M"),
    ([(plus(M, N),), (N,)], ["N = 1.0", "M = (0.0 - N) / 1"], "MN"),
    ([(mul(M, N),), (N,)], ["N = 1.0", "M = 0.0 / N"], "MN"),  # refused once, though N is never 0
    ([(mul(mul(K, M), N),), (N, plus(N, K))], ["N = 1.0", "K = (1.1 - N) / 1", "M = 0.0 / (K * N)"], "KMN"),
    ([(plus(M, mul(M, N)),), (N,)], ["N = 1.0", "M = 0.0 / (1 + N)"], "MN"),
    ([(mul(M, sub(N, ONE)),), (N,)], ["N = 1.0", "M = 0.0 / (-1 + N)"], "N"),  # N may be 1
    ([(mul(M, sub(N, ONE)),), (N,), (mul(M, index(2)),)], ["N = 1.0", "M = 2.0 / 2"], "MN"),
    ([(plus(M, N),)], [], ""),
    ([(floordiv(M, index(2)),)], [], ""),
    ([(plus(M, Binary("%", M, index(4))),)], [], ""),  # told once, though no call could solve it
]


@pytest.mark.parametrize(("shapes", "steps", "told"), CASES)
def test_steps(shapes: list[tuple[Expr, ...]], steps: list[str], told: str) -> None:
    shown: list[str] = []
    for s in solve_sizes(shapes):
        rest, factor = format_expr(s.rest), format_expr(s.factor)
        value = f"{s.array}.{s.axis}" if rest == "0" else f"({s.array}.{s.axis} - {rest})"
        plain = rest == "0" and factor == "1"
        shown.append(f"{s.dim.name} = {value}" if plain else f"{s.dim.name} = {value} / {_grouped(factor)}")
    assert shown == steps
    assert "".join(sorted(d.name for d in told_by(shapes))) == told


def test_what_is_given_needs_no_step() -> None:
    (step,) = solve_sizes([(plus(M, N),), (N,)], given=(N,))
    assert (step.dim, step.array, format_expr(step.rest)) == (M, 0, "N")


def _grouped(text: str) -> str:
    return f"({text})" if " " in text else text
