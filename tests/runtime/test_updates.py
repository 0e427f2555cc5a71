"""Outputs that update an input: one array for both, where integer sets prove that no element is read after it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorc_dsl.backend.llvm.ahead.library import FORMS
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import Task, loads
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.proof.equivalence.validate import Valid
from tests.ahead.made import needs_compiler, python

Array = NDArray[Any]

TEXT = """
compute axpy(Y: f32[N], X: f32[N]; a: float) -> Z: f32[N] updates Y { Z[i] = Y[i] + a * X[i] }
compute apart(Y: f32[N], X: f32[N]; a: float) -> Z: f32[N] { Z[i] = Y[i] + a * X[i] }
compute front(Y: f32[N]) -> Z: f32[N] updates Y { Z[i] = Y[min(i + 1, N - 1)] }
compute prefix(Y: f32[N]) -> Z: f32[N] updates Y { Z[i] = Y[i] + Y[max(i - 1, 0)] }
compute both(Y: f32[N], X: f32[N]) -> Z: f32[N] updates Y, S: f32[N] {
    Z[i] = 2.0 * Y[i]
    S[i] = X[i] + Z[i]
}
schedule wide for axpy {
    let [i] = Z.loops
    let [i0, i1] = split(i, [_, 8], partial=true)
    parallel(i0)
    vectorize(i1)
}
schedule in_order for front {
    let [i] = Z.loops
    let [i0, i1] = split(i, [_, 4], partial=true)
    unroll(i1)
}
schedule at_once for front {
    let [i] = Z.loops
    vectorize(i)
}
task fixed = axpy(N=1009, a=2.0) with wide
task any = axpy(N=0..5000, a=2.0) with wide
task plain = apart(N=1009, a=2.0)
task front = front(N=37) with in_order
task front_at_once = front(N=37) with at_once
task prefix = prefix(N=37)
task both = both(N=37)
"""


def task(name: str, text: str = TEXT, target: str | None = None) -> Task:
    found = loads(f"use std.cpu\n{text}", threads=1) if target is None else loads(text, target=target)
    return found[name]


def kernel(name: str, text: str = TEXT) -> Any:
    found = task(name, text)
    return found.replay(found.sample(0))


def numbers(n: int) -> Array:
    return np.random.default_rng(n).random(n, np.float32)


@pytest.mark.parametrize(("name", "n"), [("fixed", 1009), ("any", 0), ("any", 1), ("any", 7), ("any", 4999)])
def test_a_call_updates_its_array_and_returns_it(name: str, n: int) -> None:
    y, x = numbers(n), numbers(n) + 1
    want, kept = y + 2 * x, x.copy()
    assert kernel(name)(y, x) is y
    np.testing.assert_allclose(y, want, rtol=1e-6)
    np.testing.assert_array_equal(x, kept)


def test_other_outputs_are_made_or_given() -> None:
    run, y, x = kernel("both"), numbers(37), numbers(37)
    want = 2 * y
    z, s = run(y, x)
    assert z is y
    np.testing.assert_allclose(s, x + want)
    np.testing.assert_allclose(y, want)
    s2 = np.empty_like(s)
    z, got = run(y, x, s2)
    assert z is y and got is s2
    np.testing.assert_allclose(y, 2 * want)
    z, _ = run(X=x, Y=y)
    assert z is y


def test_the_array_has_to_be_writable_and_apart() -> None:
    run, y = kernel("any"), numbers(9)
    with pytest.raises(ValueError, match="share memory"):
        run(y, y)
    y.flags.writeable = False
    with pytest.raises(ValueError, match=r"Y: .*read-only"):
        run(y, numbers(9) + 1)


def test_elements_that_are_read_again_are_refused() -> None:
    y = numbers(37)
    want = np.append(y[1:], y[-1])
    assert kernel("front")(y) is y
    np.testing.assert_array_equal(y, want)
    for name, code in (("prefix", "E0908"), ("front_at_once", "E0696")):
        with pytest.raises(TschedError, match=rf"{code}: .*`Z` cannot update `Y`: .* may read elements of `Y`"):
            kernel(name)
    found = task("prefix")
    assert "cannot update" in found.measure(found.sample(0)).message


@pytest.mark.parametrize("value", ["T[max(i - 1, 0)] + T[i]", "T[i] * T[min(i + 1, N - 1)]", "T[N - 1 - i]"])
def test_every_draw_of_the_default_space_keeps_what_is_read_later(value: str) -> None:
    """Stages were computed in place of their reads, and no draw had a kernel."""
    text = "let T[i] = Y[i] * 2.0; Z[i] = "
    found = task("t", f"compute f(Y: f32[N]) -> Z: f32[N] updates Y where N >= 1 {{ {text}{value} }}\ntask t = f(N=37)")
    y = numbers(37)
    at, t = np.arange(37), 2 * y
    want = {"T[m": t[np.maximum(at - 1, 0)] + t, "T[i": t * t[np.minimum(at + 1, 36)], "T[N": t[::-1]}[value[:3]]
    for seed in range(6):
        trace, given = found.sample(seed), y.copy()
        assert isinstance(found.verify(trace), Valid)
        found.replay(trace)(given)
        np.testing.assert_allclose(given, want, rtol=1e-6)


@pytest.mark.parametrize("name", ["fixed", "any", "front", "both"])
def test_the_program_says_it_and_is_measured_and_proved(name: str) -> None:
    found = task(name)
    text = format_program(found.program)
    assert "updates Y" in text and parse_program(Source("p", text)) == found.program
    trace = found.sample(0)
    assert isinstance(found.verify(trace), Valid)
    assert found.measure(trace).message == ""


def test_a_task_that_updates_is_another_task() -> None:
    assert format_program(task("fixed").program) != format_program(task("plain").program).replace("apart", "axpy")


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("Y: f32[N]) -> Z: f32[N] updates X", "is no input"),
        ("Y: f32[N]) -> Z: f32[N] updates Z", "is no input"),
        ("Y: const f32[N]) -> Z: f32[N] updates Y", "is constant"),
        ("Y: f64[N]) -> Z: f32[N] updates Y", "another type, shape or strides"),
        ("Y: f32[N] strides [2]) -> Z: f32[N] updates Y", "another type, shape or strides"),
        ("Y: f32[N], X: f32[N] updates Y) -> Z: f32[N]", "is no output"),
    ],
)
def test_updates_that_do_not_fit(head: str, reason: str) -> None:
    with pytest.raises(TschedError, match=reason):
        task("t", f"compute f({head} {{ Z[i] = f32(1.0) }}\ntask t = f(N=5)")


def test_threads_of_a_gpu() -> None:
    text = """
compute axpy(Y: f32[N], X: f32[N]; a: float) -> Z: f32[N] updates Y { Z[i] = Y[i] + a * X[i] }
target gpu = cuda(cpu="sm_80", cores=4, threads=1024, shared_memory=49152, registers=65536)
schedule bound for axpy {
    let [i] = Z.loops
    let [i0, i1] = split(i, [_, 32], partial=true)
    bind(i0, "block.x")
    bind(i1, "thread.x")
}
task t = axpy(N=101, a=2.0) with bound
"""
    found = task("t", text, "gpu")
    assert found.emulate(found.sample(0)).fault == ""


@needs_compiler
def test_c_has_one_parameter(tmp_path: Path) -> None:
    found = task("any")
    file = tmp_path / f"any{FORMS['so'].suffix}"
    found.export(found.sample(0), file, "so")
    header = found.library(found.sample(0)).make("header").decode()
    assert (
        "Y: input and output, f32[N]" in header
        and "float *Y" in header
        and "const float *Y" not in header
        and " *Z" not in header
    )
    program = """
y, x = array("f", [1.0, 2.0, 3.0]), array("f", [1.0, 1.0, 2.0])
status = call("any", describe(y, [3]), describe(x, [3]))
print(json.dumps([*status, list(y)]))
"""
    assert python(file, program) == [0, 0, [3.0, 4.0, 7.0]]
