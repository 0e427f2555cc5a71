"""What is wrong with a `model` item is said at its place, and what is right becomes a plan."""

from __future__ import annotations

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.models import Call, View
from tensorc_dsl.check.scope import CheckedFile, load_file

COMPUTES = """
compute add(A: f32[N], B: f32[N]) -> C: f32[N] {
    C[i] = A[i] + B[i]
}

compute halves(A: f32[N]; by: int = 2) -> L: f32[M], R: f32[M]
where M = N / by, by >= 1
{
    L[i in M] = A[i]
    R[i in M] = A[i + N - M]
}

compute shared(A: f32[N], W: const f32[N]) -> C: f32[N] {
    C[i] = A[i] * W[i]
}
"""


def checked(model: str) -> CheckedFile:
    return load_file(Source("net.tsched", COMPUTES + model))


def test_a_model_becomes_calls_of_distinct_tasks() -> None:
    file = checked("""
        model net(x: f32[2, 4], w: f32[8]) -> y: f32[8], z: f32[4]
        {
            let v = reshape(x, [8])
            let (a, b) = halves(v)
            let c = add(a, b)
            (_, z) = halves(v, by=2)
            let d = add(v, v)
            y = shared(d, w)
        }
    """)
    assert file.diagnostics == ()
    plan = file.plans["net"]
    assert plan.steps[0] == View("x", "v")
    assert plan.steps[1] == Call("halves", ("v",), ("a", "b"))
    assert list(plan.tasks) == ["halves", "add", "add_2", "shared"]
    assert [p.shape[0] for p in plan.programs["add_2"].params] == [plan.values["v"].shape[0]] * 3


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("let a = x + x", "E0449", "is no call"),
        ("let a[i] = add(x, x)", "E0449", "is no call"),
        ("let a = add(x, add(x, x))", "E0449", "`add(x, x)` is no value of the model"),
        ("let a = halves(x)", "E0449", "`halves` returns 2 tensors; named here: 1"),
        ("let x = add(x, x)", "E0449", "`x` is a value of the model already"),
        ("a = add(x, x)", "E0449", "`a` is no output"),
        ("let a = reshape(x, [3])", "E0449", "`x` has 4 elements"),
        ("let a = sub(x, x)", "E0227", "there is no compute `sub`"),
        ("let a = add(x, u)", "E0405", "there is no value `u`"),
        ("let a = add(x)", "E0423", "takes 2 tensors"),
        ("let a = add(x, w)", "E0423", "`w` has 8"),
        ("let a = halves(x, from=2)", "E0401", "from"),
    ],
)
def test_a_line_that_does_not_fit_is_a_finding(line: str, code: str, message: str) -> None:
    (found,) = checked(f"model net(x: f32[4], w: f32[8]) -> y: f32[4] {{\n {line}\n y = add(x, x)\n}}").errors
    assert (found.code, message in found.message) == (code, True), (found.code, found.message)


def test_an_output_is_computed_as_it_is_declared() -> None:
    (missing,) = checked("model net(x: f32[4]) -> y: f32[4] {\n let a = add(x, x)\n}").errors
    assert "never computed" in missing.message
    (other,) = checked("model net(x: f32[4]) -> y: f64[4] {\n y = add(x, x)\n}").errors
    assert "is declared as `y: f64[4]`" in other.message


def test_sizes_of_a_model_are_numbers() -> None:
    (found,) = checked("model net(x: f32[N]) -> y: f32[4] {\n y = add(x, x)\n}").errors
    assert found.code == "E0405"
