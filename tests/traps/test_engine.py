"""Traps of storage, draws, records and checking; `docs/traps.md` lists all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Alloc, Flat, body_of
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.step import LoopRef
from tensorc_dsl.tuning.measure.local import LocalRunner
from tensorc_dsl.tuning.measure.outcome import Status
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.trial import Trial, program_key, target_key
from tensorc_dsl.tuning.search.space import neighbours
from tests.codegen import native
from tests.interp.spaces import again, rng, schedule
from tests.measure.faults import kernel, task
from tests.programs import matmul, random_inputs, softmax


def allocations(body: tuple[Flat, ...], around: int = 0) -> list[tuple[int, str]]:
    """The buffers of a flat kernel with how many others live around each."""
    out: list[tuple[int, str]] = []
    for s in body:
        inside = around
        if isinstance(s, Alloc):
            out.append((around, s.name))
            inside += 1
        out += allocations(body_of(s), inside)
    return out


def test_trap_14_buffers_that_are_alive_together_do_not_share_memory() -> None:
    """A buffer's memory lives from before its first use to after its last: only `m` and `s` may have one place."""
    p = softmax(5, 7)
    depth = {name: around for around, name in allocations(lower_cpu(p).body)}
    assert depth == {"e": 0, "m": 1, "s": 1}  # `m` has been read for the last time before `s` begins; `e` outlives both
    native.check(p, random_inputs(p))
    # Left for the GPU: static offsets in one shared arena, where lifetimes decide what may overlap.


@pytest.mark.parametrize("columns", [1, 13, 16, 17, 31])
def test_trap_16_vector_loops_with_a_guard_stay_inside_their_arrays(columns: int) -> None:
    """Inputs and outputs end at pages that may not be touched: reading past the end to be fast would crash."""
    p = matmul(3, columns, 5)
    p = apply(p, "split", LoopRef("j"), (None, 16), partial=True).program
    p = apply(p, "reorder", LoopRef("j_0"), LoopRef("k"), LoopRef("j_1")).program
    p = apply(p, "vectorize", LoopRef("j_1")).program
    native.check(p, random_inputs(p))


def test_trap_19_a_pin_obeys_the_bounds_of_its_draw() -> None:
    """[5, 7] of 96 with at most 4 innermost is no decision: it is refused with the legal values, never repaired."""
    lines = "let [i, j, k] = C.loops", "let t ~ sample_perfect_tile(j, parts=2, max_innermost=4) := {}", "split(j, t)"
    for pin in ("[5, 7]", "[6, 8]", "[1, 48]"):
        with pytest.raises(TschedError) as e:
            schedule(*(line.format(pin) for line in lines)).sample(rng())
        assert "the last one of 1, 2, 3, 4" in str(e.value.diagnostics[0].notes), pin
    assert schedule(*(line.format("[12, 4]") for line in lines)).sample(rng()).decisions["t"] == (12, 4)


def test_trap_19_a_replayed_decision_that_does_not_fit_is_drawn_anew_within_its_bounds() -> None:
    s = schedule("let [i, j, k] = C.loops", "let t ~ sample_perfect_tile(j, parts=2, max_innermost=4)", "split(j, t)")
    for seed in range(20):
        found = s.replay({"t": (5, 7)}, rng(seed)).decisions["t"]
        assert isinstance(found, tuple)
        assert found[0] * found[1] == 48 and found[1] <= 4  # type: ignore[operator]


def test_trap_20_categoricals_and_partitioned_tiles_change() -> None:
    """One step of a search reaches another value of each, whatever module it stands in; test_moves reaches them all."""
    s = schedule(
        "let c ~ sample_categorical([0, 16, 64, 512])",
        'annotate(root, "c", c)',
        "let t ~ sample_partitioned_tile(C.loops[1], 3, partition=1, inner_multiple=4)",
        "split(C.loops[1], t)",
    )
    start = s.sample(rng(1))
    moves = neighbours(start)
    for name in ("c", "t"):
        assert any(m[name] != start.decisions[name] for m in moves)


def test_trap_21_a_record_serves_its_own_target_only(tmp_path: Path) -> None:
    p, narrow, wide = matmul(4, 5, 6), Target(vector_bits=256), Target(vector_bits=512)
    keys = {(target_key(t, n)) for t in (narrow, wide) for n in (1, 2)}
    assert len(keys) == 4
    trial = Trial(
        task_key=program_key(p), target_key=target_key(wide, 2), task="mm", strategy="random", seed=0, trial=0,
        status="ok", decisions={}, trace="schedule a for b {}\n", program_key="p", seconds=1e-9, times=(1e-9,),
        max_error=0.0, build_seconds=0.1, run_seconds=0.1,
    )  # fmt: skip
    with Database.open(tmp_path / "r.sqlite") as db:
        db.add(trial)
        assert db.best(program_key(p), target_key(narrow, 2)) is None
        assert db.best(program_key(p), target_key(wide, 1)) is None
        assert db.best(program_key(matmul(4, 5, 7)), target_key(wide, 2)) is None
        found = db.best(program_key(p), target_key(wide, 2))
    assert found is not None and found.seconds == 1e-9


def test_trap_23_a_wrong_kernel_cannot_win() -> None:
    """However fast: its outcome has no time, so nothing can rank it."""
    with LocalRunner(task(), Target(), threads=1) as runner:
        wrong, right = runner.run(kernel("wrong"), None), runner.run(kernel("none"), None)
    assert wrong.status is Status.WRONG_RESULT and wrong.seconds is None and wrong.times == ()
    assert right.status is Status.OK and right.seconds is not None


def test_trap_23_every_trace_text_builds_what_was_measured() -> None:
    """What is recorded as the winner is the text; it expands to the program that was checked."""
    s = schedule("let [i, j, k] = C.loops", "let t ~ sample_perfect_tile(j, parts=2)", "split(j, t)")
    trace = s.sample(rng(3))
    assert again(s, trace.text).sample(rng()).program == trace.program


@pytest.mark.parametrize(("m", "n", "k"), [(3, 5, 1), (2, 3, 4099), (1, 1, 65537)])
def test_trap_24_the_tolerance_counts_the_terms_and_the_inputs_are_not_zero(m: int, n: int, k: int) -> None:
    """Any order of a sum in f32 passes against float64; a sum that lost a term in a thousand does not."""
    p = matmul(m, n, k)
    inputs = make_inputs(p, 7)
    assert all(np.all(x != 0) for x in inputs.values())
    reference, errors = bounded(p, inputs)
    allowed = errors["C"]
    a, b = inputs["A"].astype(np.float32), inputs["B"].astype(np.float32)
    for order in (slice(None), slice(None, None, -1)):
        total = np.zeros((m, n), np.float32)
        for x in range(k)[order]:
            total = total + a[:, x : x + 1] * b[x : x + 1]
        assert np.all(np.abs(total - reference["C"]) <= allowed)
    lost = 1 + k // 1024
    without = reference["C"] - a[:, :lost].astype(np.float64) @ b[:lost].astype(np.float64)
    assert np.mean(np.abs(without - reference["C"]) > allowed) > 0.9
