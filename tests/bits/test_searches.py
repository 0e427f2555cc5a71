"""Searches among schedules that keep the bits."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import tensorc_dsl
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import Task
from tensorc_dsl.faces.api.schedules import schedule_in
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.proof.equivalence.bits import in_order
from tensorc_dsl.proof.equivalence.validate import Valid
from tensorc_dsl.tuning.measure.local import LocalRunner
from tensorc_dsl.tuning.measure.outcome import Status

FILE = """\
use std.cpu
use std.ops.{matmul, conv2d_nhwc}

task small = matmul(M=32, N=32, K=64)
task image = conv2d_nhwc(N=1, H=8, W=8, CI=8, CO=16, KH=3, KW=3, pad=1)
"""
LINE = "// keeps the bits of the compute's own order: proved, and compared in each trial\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("f.tsched").write_text(FILE)
    return tmp_path


def task(name: str) -> Task:
    return tensorc_dsl.load("f.tsched", threads=1)[name]


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["small", "image"])
def test_schedules_that_are_drawn_keep_the_bits(name: str) -> None:
    one = task(name).keeping(bits=True)
    for seed in range(4):
        trace = one.sample(seed)
        assert trace.lines[0] == "keep_order()"
        assert isinstance(one.verify_bits(trace), Valid), trace.text
        assert task(name).expand(Source("again", trace.text)).program == trace.program


def test_a_search_says_what_it_keeps() -> None:
    words = ("tune", "f.tsched", "small", "--threads", "1", "--trials", "3", "--records", "r.sqlite", "--same-bits")
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    text = Path("small.best.tsched").read_text()
    assert LINE in text
    assert "keep_order()" in text
    found = CliRunner().invoke(main, ["verify", "f.tsched", "small", "small.best.tsched", "--same-bits"])
    assert found.exit_code == 0, found.output
    named = CliRunner().invoke(
        main, ["verify", "f.tsched", "small", "small.best.tsched", "--bits-of", "small.best.tsched"]
    )
    assert named.exit_code == 0, named.output


def test_a_file_keeps_no_schedule_that_does_not_keep_the_bits() -> None:
    """A search draws each schedule behind `keep_order`; the one of the file leaves its order to lowering, which combines
    lanes of the products of two rows."""
    turned = "let columns = cache_read(C, B)\n    transform_layout(columns, (k, j) -> (j, k))"
    text = f"schedule copied for matmul {{\n    cache_read(C, A)\n    {turned}\n}}\n"
    plain = task("small")
    kept = plain.keeping(bits=True)
    held = schedule_in(text.encode(), kept, Path("small.best.tsched"))
    assert not isinstance(held, str)
    assert not isinstance(plain.verify_bits(held), Valid)
    assert not kept.holds(held)
    with_order = schedule_in(text.replace("{", "{\n    keep_order()").encode(), kept, Path("small.best.tsched"))
    assert not isinstance(with_order, str)
    assert kept.holds(with_order)


def test_bits_of_a_named_schedule_in_the_own_order_are_kept_step_by_step() -> None:
    Path("named.tsched").write_text("schedule named for matmul {\n    let [i, j, k] = C.loops\n    parallel(i)\n}\n")
    kept = task("small").keeping(bits_of="named.tsched")
    assert kept.sample(0).lines[0] == "keep_order()"


def test_a_trial_with_other_bits_is_a_wrong_result() -> None:
    one = task("small")
    steps = "let [i, j, k] = C.loops\nlet [k0, k1] = split(k, [_, 8])\nreorder(i, j, k1, k0)"
    other = one.expand(Source("other", f"schedule other for matmul {{\n{steps}\n}}")).program
    own = in_order(one.program)
    with LocalRunner(one.program, one.target, threads=1, bits_of=own) as runner:
        right, wrong = runner.measure([own, other], None)
    assert right.status is Status.OK, right.message
    assert wrong.status is Status.WRONG_RESULT
    assert "has the bits" in wrong.message
