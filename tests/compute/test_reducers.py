"""Uses of declared reducers: errors, assumptions, and how `verify` reports these."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tensorc_dsl.schedule.primitives  # noqa: F401 - declares them
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.proof.equivalence.validate import Unproved, Valid, validate
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.step import BlockRef, LoopRef
from tests.compute.texts import build, codes, errors

LOG_ADD = "max(a, b) + log(1.0 + exp(min(a, b) - max(a, b))) identity -inf"


def text(reducer: str, t: str = "f32") -> str:
    return f"reducer f(a, b) = {reducer}\ncompute g(X: {t}[M, N]) -> Y: {t}[M] {{ Y[i] = reduce f[j] X[i, j] }}"


@pytest.mark.parametrize(
    ("reducer", "t", "code"),
    [
        ("max(min(a + b, 100.0), -100.0) identity 0.0", "f32", "E0420"),
        ("max(min(a + b, 100), -100) identity 0", "i32", "E0420"),
        ("min(a + b, 127) identity 0", "i16", "E0420"),  # of i8 it is a law
        ("max(a, b) identity 0", "i32", "E0420"),  # of u32 it is
        ("min(a + b, 1e6) identity 0 assume associative", "f64", "E0420"),
        (LOG_ADD, "f32", "E0426"),
        (f"{LOG_ADD} assume commutative", "f32", "E0426"),
        ("a if a > b else b identity -inf", "f32", "E0426"),
        (f"{LOG_ADD} assume asociative", "f32", "E0427"),
    ],
)
def test_what_is_no_reducer_of_a_type(reducer: str, t: str, code: str) -> None:
    assert set(codes(text(reducer, t), M=2, N=8)) == {code}


@pytest.mark.parametrize(
    ("reducer", "t"),
    [
        ("min(a + b, 127) identity 0", "i8"),
        ("max(a, b) identity 0", "u32"),
        (f"{LOG_ADD} assume associative", "f32"),
        ("a if a > b else b identity -inf assume associative, commutative", "f32"),
        ("a if a > b else b identity -2147483648", "i32"),
    ],
)
def test_what_is_one(reducer: str, t: str) -> None:
    build(text(reducer, t), M=2, N=8)


def test_the_type_of_the_use_is_named() -> None:
    (found,) = errors(text("max(a, b) identity 0", "i32"), M=2, N=8)
    assert "f(0, f(-1, -1)) is 0, f(-1, -1) is -1" in found
    assert "for i32, as used at t.tsched:2:" in found


@pytest.mark.parametrize(
    ("reducer", "assumes"),
    [
        (f"{LOG_ADD} assume associative", ("`f` is associative",)),
        ("a * b + a + b identity 0 assume associative", ()),  # it is proved
        (
            "a if a > b else b identity -inf assume associative, commutative",
            ("`f` is commutative", "`f` is associative"),
        ),
        ("max(abs(a), abs(b)) identity 0.0", ()),  # the value that is combined is not what a step makes of it
        ("max(a, -a) + max(b, -b) identity 0.0", ()),
    ],
)
def test_verify_names_what_it_stands_on(reducer: str, assumes: tuple[str, ...]) -> None:
    program = build(text(reducer), M=2, N=8)
    scheduled = apply(program, "rfactor", BlockRef("Y"), LoopRef("j")).program
    assert scheduled != program
    assert validate(program, scheduled) == Valid(assumes)


def test_a_step_that_combines_another_value_is_not_proved() -> None:
    program = build(text("max(abs(a), abs(b)) identity 0.0"), M=2, N=8)
    scheduled = apply(program, "rfactor", BlockRef("Y"), LoopRef("j")).program
    step = "max(abs(Y[vi]), abs(Y_rf[vj, vi]))"
    for other in ("max(abs(Y[vi]), Y_rf[vj, vi])", "max(Y[vi], abs(Y_rf[vj, vi]))"):
        with pytest.raises(TschedError, match="its stores are not the update of a reduction"):
            _program(scheduled, step, other)
    other = _program(scheduled, step, "max(abs(Y[vi]), abs(-Y_rf[vj, vi]))")
    assert not isinstance(validate(program, other), Valid)
    assert isinstance(validate(program, _program(scheduled, step, step)), Valid)


def test_steps_of_constants_are_counted() -> None:
    """Steps that read nothing are told apart by their number alone."""
    f = "reducer f(a, b) = a * b + a + b identity 0"
    program = build(f"{f}\ncompute g(X: i32[M]) -> Y: i32[M] {{ Y[i] = reduce f[j in 8] i32(3) }}", M=2)
    scheduled = apply(program, "split", LoopRef("j"), (None, 3), partial=True).program
    assert isinstance(validate(program, scheduled), Valid)
    fewer = parse_program(Source("p.tsched", format_program(program).replace("j in 8", "j in 7")))
    assert not isinstance(validate(program, fewer), Valid)


def test_a_program_whose_reducer_is_none_is_not_proved() -> None:
    """Programs that are written by hand may have any reducer."""
    program = build(text(f"{LOG_ADD} assume associative"), M=2, N=8)
    step = "max(Y[vi], X[vi, vj]) + log(1.0 + exp(min(Y[vi], X[vi, vj]) - max(Y[vi], X[vi, vj])))"
    made = format_program(program).replace(step, "max(min(Y[vi] + X[vi, vj], 100.0), -100.0)")
    made = made.replace(LOG_ADD.partition(" identity")[0], "max(min(a + b, 100.0), -100.0)").replace("-inf", "0.0")
    saturating = parse_program(Source("p.tsched", made))
    report = validate(saturating, replace(saturating))
    assert isinstance(report, Unproved)
    assert "that `f` is associative" in report.diagnostic.message


def _program(p: Program, old: str, new: str) -> Program:
    made = format_program(p).replace(old, new)
    assert new in made
    return parse_program(Source("p.tsched", made))


def test_values_of_an_example_stand_as_in_the_file() -> None:
    """`m` is stored first, since it reads the old `n`: the example had it first, too, and was none of the reducer."""
    reducer = "reducer f((n, m), (k, a)) = (n + k, m if k == 0.0 else a if n == 0.0 else m + a) identity (0.0, 0.0)"
    compute = "compute g(X: f32[M, N]) -> C: f32[M], S: f32[M] { (C[i], S[i]) = reduce f[j] (1.0, X[i, j]) }"
    said = "\n".join(errors(f"{reducer}\n{compute}", M=2, N=3))
    assert "f((0, 1), (0, 2)) is (0, 1), f((0, 2), (0, 1)) is (0, 2)" in said
