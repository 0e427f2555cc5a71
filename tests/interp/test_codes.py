"""The code of drawn values in a trace is short, and equal to the one that was written."""

from __future__ import annotations

import itertools

import pytest

import tensorc_dsl
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.interp.evaluate import Drawn, Value, binary, element_code, part_code
from tensorc_dsl.ir.expr import BinaryOp

AT = Span(Source("t.tsched", "x"), 0, 1)
BOUNDS = (None, *range(-4, 5))


def drawn(code: str, value: tuple[int, ...] = (), *, tight: bool = True) -> Drawn:
    return Drawn(value, code, frozenset(("x",)), tight)


@pytest.mark.parametrize("count", range(6))
def test_parts_and_elements_of_parts_are_those_of_the_list(count: int) -> None:
    """The codes are those of Python, so Python says what they stand for: for lists of all lengths, not only the drawn one."""
    x = list(range(count))
    for low, high in itertools.product(BOUNDS, BOUNDS):
        one = part_code(drawn("x"), low, high)
        assert eval(one) == x[low:high]
        for again, end in itertools.product(BOUNDS, BOUNDS):
            assert eval(part_code(drawn(one), again, end)) == x[low:high][again:end], (one, again, end)
        for n in range(-len(x[low:high]), len(x[low:high])):
            assert eval(element_code(drawn(one), n)) == x[low:high][n], (one, n)


def test_the_codes_are_short() -> None:
    assert element_code(drawn("x[1:]"), 0) == "x[1]"
    assert element_code(drawn("x[1:-1]"), -1) == "x[-2]"
    assert part_code(drawn("x[1:]"), 1, None) == "x[2:]"
    assert element_code(drawn("a + b[1:]", tight=False), 0) == "(a + b[1:])[0]"


@pytest.mark.parametrize("value", [3, 0.5, -0.0, 0, -7])
def test_a_factor_of_one_is_left_out(value: float) -> None:
    x = Drawn(value, "x", frozenset(("x",)))
    for found in (binary("*", 1, x, AT), binary("*", x, 1, AT), binary("/", x, 1, AT)):
        assert found == x and isinstance(found, Drawn) and repr(found.value) == repr(value)
    kept: list[tuple[BinaryOp, Value, Value]] = [
        ("/", 1, Drawn(2, "x", frozenset())), ("*", 1.0, x), ("+", x, 0), ("-", 1, x), ("+", 1, x),
    ]  # fmt: skip
    for op, lhs, rhs in kept:
        found = binary(op, lhs, rhs, AT)
        assert isinstance(found, Drawn) and found.code != "x"


TEXT = """\
compute f(A: f32[M]) -> B: f32[M] { B[i] = A[i] }
schedule s for f {
    let [i] = B.loops
    let x ~ sample_perfect_tile(i, parts=4)
    let rest = x[1:]
    let y ~ sample_categorical(["ab", "cd"])
    let [a, b] = split(i, [_, 1 * rest[0] * product(rest[1:]) / 1])
    annotate(a, "k", ("z" + y)[1:][1])
    annotate(b, "l", rest[:2][1:][-1])
}
task t = f(M=64) with s
"""


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(4))
def test_a_trace_with_short_codes_makes_the_same_program(seed: int) -> None:
    task = tensorc_dsl.loads(TEXT, threads=1)["t"]
    trace = task.sample(seed)
    assert "[_, x[1] * (x[2] * x[3])]" in trace.text and "rest" not in trace.text
    again = task.expand(Source("again.tsched", trace.text))
    assert again.text == trace.text and again.program == trace.program
