"""`rfactor` of declared reducers whose contribution is an operation."""

from __future__ import annotations

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.api import TaskFile
from tensorc_dsl.proof.equivalence.validate import Valid, validate
from tensorc_dsl.tuning.machine.host import host_target

TEXT = """
reducer joined(a, b) = {step} identity {identity}
compute it(X: {dtype}[N]) -> Y: {dtype} {{ Y = reduce joined[n] {value} }}
schedule s for it {{ let [n] = Y.loops; let [a, b] = split(n, [_, 4], partial=true); rfactor(Y, b) }}
task t = it(N=9) with s
"""


@pytest.mark.parametrize(
    ("step", "identity", "dtype", "value"),
    [
        ("bit_or(a, b)", "0", "u32", "shift_left(1, X[n])"),
        ("bit_and(a, b)", "4294967295", "u32", "bit_not(X[n])"),
        ("hypot(a, b)", "0.0 assume associative", "f64", "sqrt(X[n])"),
    ],
)
def test_the_contribution_may_be_an_operation(step: str, identity: str, dtype: str, value: str) -> None:
    text = TEXT.format(step=step, identity=identity, dtype=dtype, value=value)
    task = TaskFile(load_source(Source("declared.tsched", text)), host_target(2))["t"]
    assert isinstance(validate(task.program, task.sample(0).program), Valid)
