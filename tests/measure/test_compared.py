"""Checks say how much of the results they compare: NaN in the reference compares nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.tuning.measure.child import Task
from tensorc_dsl.tuning.measure.local import little_compared
from tests.compute.texts import build

ROOTS = """compute roots(X: f64[N]) -> Y: f64[N], Z: i32[N]
{0}
{{
    let s[i] = X[i] * 1.0
    Y[i] = sqrt(s[i])
    Z[i] = 3
}}
schedule plain for roots {{}}
task small = roots(N=100) with plain
"""


def task(text: str, n: int) -> Task:
    return Task.of(build(text.split("schedule")[0], N=n), 0)


def test_the_share_of_numbers_is_counted() -> None:
    plain = task(ROOTS.format(""), 100)
    negative = int((plain.inputs["X"] < 0).sum())
    assert plain.compared == 1 - negative / 200
    assert task(ROOTS.format("assume X positive"), 100).compared == 1.0
    assert task(ROOTS.format(""), 0).compared == 1.0
    assert task("compute f(X: f32[N]) -> Y: f32[N] { Y[i] = -inf if i > 0 else X[i] }", 9).compared == 1.0
    assert task("compute f(X: f32[N]) -> Y: f32[N] { Y[i] = nan if i > 0 else X[i] }", 8).compared == 1 / 8


def test_a_warning_says_how_much() -> None:
    assert little_compared(1.0) is None
    assert little_compared(0.9) is None
    found = little_compared(0.899)
    assert found is not None
    assert "W0706" in found.code
    assert "89% of the elements are compared" in found.message


@pytest.mark.parametrize("says", ["", "assume X positive"])
def test_commands_warn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("roots.tsched").write_text(ROOTS.format(says), encoding="utf-8")
    for command, *options in (
        ["tune", "--trials", "1", "--records", "r.sqlite"],
        ["run", "--records", "r.sqlite"],
        ["replay", "small.best.tsched"],
    ):
        done = CliRunner().invoke(main, [command, "roots.tsched", "small", *options])
        assert ("W0706" in done.output) == (says == ""), (command, done.output)
        assert done.exit_code == 0
