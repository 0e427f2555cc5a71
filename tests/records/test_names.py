"""Tasks that are equal up to names share records, both ways; tasks that differ in anything else do not."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

import tensorc_dsl
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import Task
from tensorc_dsl.faces.api.recorded import reviewed
from tensorc_dsl.ir.expr import add, index
from tensorc_dsl.ir.nameless import in_scope, names
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program, blocks, find_block, replace_stmt
from tensorc_dsl.proof.equivalence.validate import Valid
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.exchange import read
from tensorc_dsl.tuning.records.names import trace_for
from tensorc_dsl.tuning.records.trial import Trial, program_key, subject, target_key
from tests.compute.random_computes import random_compute
from tests.compute.random_features import random_features
from tests.compute.texts import build

OLD = Path(__file__).parent / "old"

ONE = """\
use std.cpu
reducer longest(a, b) = max(a, b) identity -inf
compute layer(A: f32[M, K], W: const f32[K, N], b: f32[N]) -> Y: f32[M, N] {
    let S[i, j] = sum[k] A[i, k] * W[k, j]
    let R[i] = reduce longest[j] abs(S[i, j])
    Y[i, j] = (S[i, j] + b[j]) / (1.0 + R[i])
}
task one = layer(M=12, K=8, N=20)
"""

OTHER = """\
use std.cpu
reducer greatest(so_far, x) = max(so_far, x) identity -inf
compute dense(i: f32[P, Q], j: const f32[Q, O], S: f32[O]) -> k: f32[P, O] {
    let C[x, y] = sum[r] i[x, r] * j[r, y]
    let ks[x] = reduce greatest[n] abs(C[x, n])
    k[x, o] = (C[x, o] + S[o]) / (1.0 + ks[x])
}
task other = dense(P=12, Q=8, O=20)
"""


def task(text: str) -> Task:
    (found,) = tensorc_dsl.loads(text, threads=1).values()
    return found


def record(t: Task, trace: Trace, seconds: float) -> Trial:
    return Trial(
        program_key(t.program), target_key(t.target, 1), t.name, "random", 0, 0, "ok", trace.decisions, trace.text,
        program_key(trace.program), seconds, (seconds,), names=in_scope(t.program),
    )  # fmt: skip


@pytest.mark.parametrize(("here", "there"), [(ONE, OTHER), (OTHER, ONE)])
def test_a_record_is_that_of_every_task_that_computes_the_same(here: str, there: str, tmp_path: Path) -> None:
    tuned, asks = task(here), task(there)
    assert program_key(tuned.program) == program_key(asks.program)
    for seed in range(4):
        path = tmp_path / f"{seed}.sqlite"
        trace = tuned.sample(seed)
        with Database.open(path) as db:
            db.add_all([record(tuned, trace, 1e-6)], [subject(tuned.program, tuned.target, 1)])
        found = asks.recorded(path)
        assert found is not None
        assert program_key(found.program) == program_key(trace.program)
        assert isinstance(asks.verify(found), Valid)
        assert asks.expand(Source("again", found.text)).text == found.text
        with Database.open(path) as db:
            (review,) = reviewed(asks, db, 1)
        assert review.problem == ""


DIFFERENT = {
    "another type": ("f32", "f64"),
    "another extent": ("N=20", "N=24"),
    "another reducer": ("max(a, b) identity -inf", "a + b identity 0.0"),
    "operands swapped": ("(S[i, j] + b[j]) / (1.0 + R[i])", "(1.0 + R[i]) / (S[i, j] + b[j])"),
    "another order of rounding": ("A[i, k] * W[k, j]", "W[k, j] * A[i, k]"),
    "another constant": ("1.0 +", "2.0 +"),
    "another function": ("abs(", "sqrt("),
    "arguments in another order": ("A: f32[M, K], W: const f32[K, N]", "W: const f32[K, N], A: f32[M, K]"),
    "an input that is no constant": ("const f32", "f32"),
    "strides": ("A: f32[M, K]", "A: f32[M, K] strides [K + 4, 1]"),
    "an output over an input": ("-> Y: f32[M, N]", "-> Y: f32[M, N] updates Z"),
    "something assumed": ("-> Y: f32[M, N] {", "-> Y: f32[M, N] assume A in 0..1 {"),
    "another index": (
        "let R[i] = reduce longest[j] abs(S[i, j])",
        "let R[i] = reduce longest[j in N] abs(S[i, N - 1 - j])",
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_computes_something_else_shares_nothing(name: str) -> None:
    old, new = DIFFERENT[name]
    text = ONE.replace(old, new)
    if "updates Z" in text:
        text = text.replace("b: f32[N])", "b: f32[N], Z: f32[M, N])").replace("+ b[j]", "+ b[j] + 0.0 * Z[i, j]")
    assert text != ONE
    assert program_key(task(text).program) != program_key(task(ONE).program)


PADDED = (
    "use std.cpu\ncompute p(A: f32[8]) -> B: f32[10] { B[i] = A[i - 1] if i >= 1 and i < 9 else ZERO }\ntask t = p()\n"
)


def test_padding_with_another_value_shares_nothing() -> None:
    keys = {program_key(task(PADDED.replace("ZERO", x)).program) for x in ("0.0", "-0.0", "1.0", "-inf")}
    assert len(keys) == 4


def renamed(p: Program, rng: random.Random) -> tuple[Program, Mapping[str, str]]:
    """The program with a new name for each of its parts, in an order of the alphabet that says nothing of the old one."""
    old = names(p)
    new = [f"{rng.choice('abcxyz')}{rng.randrange(10)}n{k}" for k in range(len(old))]
    rng.shuffle(new)
    names_of = dict(zip(old, new, strict=True))
    text = re.sub(r"[A-Za-z_]\w*", lambda m: names_of.get(m[0], m[0]), format_program(p))
    return replace(parse_program(Source("p", text)), intrinsics=p.intrinsics), names_of


LIBRARY = """\
use std.cpu
use std.ops.{matmul, conv2d_nhwc, softmax, layer_norm}
task a = matmul(M=24, N=40, K=16)
task b = conv2d_nhwc(N=1, H=9, W=9, CI=8, CO=16, KH=3, KW=3, pad=1)
task c = softmax(M=8, N=40)
task d = layer_norm(M=8, N=40)
"""


@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
@pytest.mark.parametrize("seed", range(3))
def test_a_trace_is_replayed_whatever_the_parts_are_called(name: str, seed: int) -> None:
    t = tensorc_dsl.loads(LIBRARY, threads=2)[name]
    rng = random.Random(f"{name} {seed}")
    program, _ = renamed(t.program, rng)
    assert program_key(program) == program_key(t.program) and in_scope(program) != in_scope(t.program)
    space = replace(t.space, program=program)
    for n in range(3):
        try:
            trace = t.space.sample(np.random.default_rng(97 * seed + n))
        except ScheduleRefusal:
            continue
        text = trace_for(record(t, trace, 1.0), program, t.space.compute)
        (schedule,) = parse(Source("again", text)).items
        assert isinstance(schedule, tree.ScheduleDef)
        again = replace(space, definition=schedule).sample(np.random.default_rng(0))
        assert program_key(again.program) == program_key(trace.program)
        assert again.decisions.keys() == trace.decisions.keys()


def test_names_that_a_schedule_binds_yield_to_those_of_the_program() -> None:
    trial = Trial(
        "", "", "t", "", 0, 0, "ok", {},
        "schedule s for f {\n    let [i, j] = C.loops\n    let t ~ sample_categorical([1, 2]) := 1\n"
        "    transform_layout(C, (i, j) -> (j, i))\n    let D = cache_write(C, i)\n    annotate(D, \"C\", t)\n}\n",
        "", 1.0, names=("A", "C", "C"),
    )  # fmt: skip
    p = parse_program(
        Source(
            "p",
            "program g(t: f32[4, 4], i: f32[4, 4]) { for x in 4, y in 4 "
            "{ block i { spatial vx in 4 = x; spatial vy in 4 = y; i[vx, vy] = t[vx, vy] } } }",
        )
    )
    assert in_scope(p) == ("t", "i", "i")
    said = trace_for(trial, p, "g")
    assert said == (
        "schedule s for g {\n    let [i_1, j] = i.loops\n    let t_1 ~ sample_categorical([1, 2]) := 1\n"
        '    transform_layout(i, (i, j) -> (j, i))\n    let D = cache_write(i, i_1)\n    annotate(D, "C", t_1)\n}\n'
    )


def test_records_of_format_2_have_the_keys_of_today(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.executescript((OLD / "2.sql").read_text(encoding="utf-8"))
    same = task(
        "compute f(x: f32[K]) -> z: f32[K] { let y[k] = x[k] * 2.0; z[k] = y[k] + 1.0 }\n"
        "schedule s for f { }\ntask t = f(K=64) with s\n"
    )
    carried = read(BytesIO((OLD / "2.jsonl").read_bytes()))
    assert carried.passed == []
    with Database.open(path) as db:
        found = [k.trial for k in db.all()]
        assert found == carried.trials
        assert db.add_all(carried.trials, carried.subjects) == 0
        assert {t.task_key for t in carried.trials} == {program_key(same.program), "of no program"}
        assert (
            [s.task_key for s in carried.subjects if s.task_key] == [program_key(same.program)] == [*db.subjects()[0]]
        )
    for t in carried.trials[:2]:
        assert t.names == ("A", "C", "B", "B", "C")
        text = trace_for(t, same.program, "f")
        assert "compute_at(y, " in same.expand(Source("r", text)).text


@pytest.mark.parametrize("features", [random_compute, random_features])
def test_keys_of_random_computes_know_no_names(features: Callable[[int], tuple[str, dict[str, int]]]) -> None:
    for seed in range(20):
        text, sizes = features(seed)
        p = build(text, **sizes)
        other, _ = renamed(p, random.Random(seed))
        assert program_key(other) == program_key(p), text
        for b in blocks(p)[:1]:  # one more instance along each index is another program
            for n, loop in enumerate(find_block(p, b.name)[0]):
                longer = replace_stmt(p, loop.var, (replace(loop, extent=add(loop.extent, index(1))),))
                assert program_key(longer) != program_key(p), (text, n)
