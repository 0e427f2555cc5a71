"""Reductions by shuffles: right for every reducer and type, without barriers in a warp; what no shuffle brings is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.codegen.view import cuda_text
from tensorc_dsl.backend.cuda.emulation.run import emulation
from tensorc_dsl.backend.cuda.lower.kernels import THREAD, Device, DeviceProgram, Phase, barriers_in, format_device
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.items import target_of
from tensorc_dsl.check.scope import CheckedFile, load_source
from tensorc_dsl.elaborate.compute import elaborate
from tensorc_dsl.interp.space import Space
from tensorc_dsl.ir.expr import Compare, Const, Var, index
from tensorc_dsl.ir.program import Program, Store
from tensorc_dsl.lower.flat import Flat, If, LowerError, Shuffle, inside
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Site, Trace
from tensorc_dsl.tuning.measure.emulation import emulate
from tensorc_dsl.tuning.search.expansion import stream
from tests.gpu.kernels import ptx
from tests.gpu.test_lowering import check, program
from tests.programs import proof_fault

TEXT = """
use std.ops.{softmax, argmax, layer_norm}
use std.gpu.bind
use std.gpu.reduction
use std.gpu.targets.{sm_80}

reducer both(a, b) = a * b + a + b identity 0

compute total(X: T[M, N]; T: dtype) -> S: T[M] { S[i] = sum[j] X[i, j] }
compute greatest(X: T[M, N]; T: dtype) -> S: T[M] { S[i] = max[j] X[i, j] }
compute least(X: T[M, N]; T: dtype) -> S: T[M] { S[i] = min[j] X[i, j] }
compute multiplied(X: T[M, N]; T: dtype) -> S: T[M] { S[i] = prod[j] X[i, j] }
compute own(X: T[M, N]; T: dtype) -> S: T[M] { S[i] = reduce both[j] X[i, j] }
compute everything(X: T[M, N]; T: dtype) -> S: T { S = sum[i, j] X[i, j] }
compute mean(X: f32[M, N]) -> S: f32[M] { let s[i] = sum[j] X[i, j]; S[i] = s[i] / f32(N) }
"""


@cache
def library() -> CheckedFile:
    spaces = [
        f"space w{n} for cuda {{ cross_thread_reduction(threads=[{n}]); auto_bind; bind_single }}\n"
        for n in (32, 64, 256, 1024)
    ]
    return load_source(Source("reductions.tsched", TEXT + "".join(spaces)))


def by_shuffles(name: str, width: int, **sizes: int | str) -> tuple[Program, Trace]:
    """A compute, and a schedule of it in which as many threads reduce each number by shuffles."""
    file = library()
    p = elaborate(file.computes[name], sizes, name, file.library)
    space = Space(file.spaces[f"w{width}"], name, p, target_of(file.targets["sm_80"]), file.modules)
    rng = stream(0, name, "shuffles")

    def decide(site: Site) -> Decision:
        wanted = {"together": True, "combine": "by_shuffles"}
        return next((v for k, v in wanted.items() if site.name.startswith(k)), None) or site.distribution.sample(rng)

    trace = space.expand(decide)
    assert not trace.refused
    return p, trace


def shuffles(p: DeviceProgram) -> int:
    phases = [s for k in p.kernels for s in k.body if isinstance(s, Phase)]
    return sum(isinstance(x, Shuffle) for s in phases for x in inside(s.body))


REDUCTIONS = [
    ("total", "i32"), ("total", "f32"), ("total", "i64"), ("total", "f64"), ("greatest", "f16"), ("greatest", "bf16"),
    ("least", "i8"), ("least", "u8"), ("multiplied", "i16"), ("own", "i32"), ("own", "f32"), ("everything", "i32"),
]  # fmt: skip


@pytest.mark.corpus
@pytest.mark.parametrize(("name", "dtype"), REDUCTIONS)
def test_any_reducer_of_any_type(name: str, dtype: str) -> None:
    """With idle lanes, since a warp has more of them than there are numbers, and with idle warps."""
    width = 64 if name == "everything" or "f" in dtype else 32
    p, trace = by_shuffles(name, width, M=2, N=width - 7, T=dtype)
    kernels = lower_device(trace.program)
    assert shuffles(kernels) == 5
    assert ptx(kernels, "sm_80").count("shfl.sync.down.b32") == (10 if "64" in dtype else 5)
    assert (found := emulate(p, emulation(kernels))).fault == "", trace.text
    assert found.max_error == 0.0 or "f" in dtype


@pytest.mark.corpus
@pytest.mark.parametrize("n", [0, 1, 33, 1000])
def test_integers_are_exact_at_any_size(n: int) -> None:
    p, trace = by_shuffles("total", 256 if n > 32 else 32, M=3, N=n, T="i32")
    found = emulate(p, emulation(lower_device(trace.program)))
    assert (found.fault, found.max_error) == ("", 0.0)


@pytest.mark.corpus
@pytest.mark.parametrize("width", [32, 256])
def test_no_rows_have_no_shuffles(width: int) -> None:
    """What never runs reads no lane: a store of nothing was missed."""
    original, trace = by_shuffles("total", width, M=0, N=9, T="f32")
    kernels = lower_device(trace.program)
    assert shuffles(kernels) == 0
    assert emulate(original, emulation(kernels)).fault == ""


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("softmax", {"M": 3, "N": 70}),
        ("layer_norm", {"M": 2, "N": 65}),
        ("mean", {"M": 5, "N": 64}),
        ("argmax", {"M": 3, "N": 65}),
    ],
)
def test_operators_whose_threads_reduce_together(name: str, sizes: dict[str, int]) -> None:
    p, trace = by_shuffles(name, 64, **sizes)
    assert proof_fault(p, trace.program) == ""
    assert emulate(p, emulation(lower_device(trace.program))).fault == ""


def test_a_warp_needs_no_barrier_and_warps_meet_once() -> None:
    for width, count, barriers in ((32, 5, 0), (64, 5, 1), (256, 7, 1), (1024, 9, 1)):
        _, trace = by_shuffles("total", width, M=2, N=2048, T="f32")
        kernels = lower_device(trace.program)
        (k,) = kernels.kernels
        assert (shuffles(kernels), barriers_in(k.body)) == (count, barriers)
        assert sum(b.size for b in k.shared) == (0 if width == 32 else width // 32)
    assert "__shfl_down_sync(0xffffffffu, " in cuda_text(kernels)


LANES = """
program p(A: TYPE[4, 64], C: TYPE[4, 64]) {
    buffer T: TYPE[64] in "warp"
    bound("block.x") for i in 4 {
        bound("thread.x") for j in 64 {
            block T { spatial vi in 4 = i; spatial vj in 64 = j; T[vj] = A[vi, vj] + VALUE }
        }
        bound("thread.x") for j_1 in 64 {
            block C { spatial vi in 4 = i; spatial vj in 64 = j_1; C[vi, vj] = T[PLACE] }
        }
    }
}
"""


def lanes(place: str, dtype: str = "f32") -> str:
    return LANES.replace("PLACE", place).replace("TYPE", dtype).replace("VALUE", "1" if dtype[0] in "iu" else "1.0")


@pytest.mark.parametrize(
    ("place", "move"),
    [
        ("vj / 32 * 32 + (vj + 3) % 32", None),  # around the end: two distances
        ("vj / 32 * 32 + 7", "shuffle lane 7"),
        ("vj / 16 * 16 + 5", "shuffle lane 5 of 16"),
        ("vj / 4 * 4 + 3", "shuffle lane 3 of 4"),
        ("vj / 32 * 32 + vj % 32 / 3 * 3", None),  # groups of three lanes
        ("vj / 2 * 2 + 1 - vj % 2", "shuffle xor 1"),
        ("vj / 32 * 32 + 31 - vj % 32", "shuffle xor 31"),
        ("vj", ""),
    ],
)
def test_lanes_read_any_lane_by_one_shuffle_or_are_refused(place: str, move: str | None) -> None:
    if move is None:
        with pytest.raises(
            LowerError, match="its lanes are at several distances: one shuffle does not bring it; store"
        ):
            lower_device(program(lanes(place)))
        return
    (k,) = check(lanes(place))
    text = format_device(lower_device(program(lanes(place))))
    assert (move in text if move else "shuffle" not in text) and not barriers_in(k.body)


def test_a_group_of_lanes_is_named_in_ptx_and_in_cuda() -> None:
    """The bits above the end of a warp say which lanes are a group (PTX ISA 9.2, section 9.7.9.6)."""
    kernels = lower_device(program(lanes("vj / 4 * 4 + 3")))
    assert re.search(r"shfl\.sync\.idx\.b32\s+%r\d+, %r\d+, 3, 7199, -1;", ptx(kernels, "sm_80"))  # (32 - 4) << 8 | 31
    assert "__shfl_sync(0xffffffffu, T[0], 3, 4)" in cuda_text(kernels)


ROWS = """
program p(A: f32[4, 64], C: f32[4, 64]) {
    buffer T: f32[64] in "warp"
    bound("block.x") for i in 4 {
        bound("thread.x") for j in 32 {
            for r in 2 {
                block T {
                    spatial vi in 4 = i; spatial vj in 64 = r * FAR + j
                    where j % 4 < LANES
                    T[vj] = A[vi, vj] + 1.0
                }
            }
        }
        bound("thread.x") for j_1 in 32 {
            for r_1 in 2 {
                block C {
                    spatial vi in 4 = i; spatial vr in 2 = r_1; spatial vl in 32 = j_1
                    C[vi, vr * 32 + vl] = T[PLACE]
                }
            }
        }
    }
}
"""


def rows(place: str, lanes: int = 4, far: int = 32) -> str:
    return ROWS.replace("PLACE", place).replace("LANES", str(lanes)).replace("FAR", str(far))


def test_a_dimension_may_count_lanes_and_what_each_has() -> None:
    check(rows("vr * 32 + 31 - vl"))
    assert "shuffle xor 31" in format_device(lower_device(program(rows("vr * 32 + 31 - vl"))))


def test_lanes_without_an_element_give_what_nobody_uses() -> None:
    """One lane of four has an element, and all of these get it."""
    (k,) = check(rows("vr * 32 + vl / 4 * 4", lanes=1))
    assert "shuffle lane 0 of 4" in format_device(lower_device(program(rows("vr * 32 + vl / 4 * 4", lanes=1))))
    assert [b.size for b in k.local if b.name == "T"] == [2]


def test_rows_of_a_lane_that_another_lane_has_too_are_refused() -> None:
    """The second row of a lane begins among the first ones of others, so a step along rows leads to another lane."""
    with pytest.raises(LowerError, match="no lane has stored it"):
        lower_device(program(rows("vr * 16 + vl", far=16)))


@pytest.mark.corpus
@pytest.mark.parametrize("dtype", ["f64", "i64", "f16", "i8", "u16"])
def test_lanes_give_values_of_any_size(dtype: str) -> None:
    text = lanes("vj / 2 * 2 + 1 - vj % 2", dtype=dtype)
    if dtype == "f64":
        text = text.replace("+ 1.0", "* A[vi, vj]")
    p = program(text)
    inputs = make_inputs(p, 0)
    fault, found = emulated(lower_device(p), p, inputs)
    assert fault == "" and ptx(lower_device(p), "sm_80").count("shfl.sync.bfly.b32") == (2 if "64" in dtype else 1)
    expected = interpret(p, inputs, "forward")["C"]
    for outputs in found:
        np.testing.assert_allclose(outputs["C"], expected, rtol=1e-3 if dtype == "f16" else 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("T[vj / 32 * 32 + 7]", "T[7]"), 'another warp has it: one shuffle does not bring it; store `T` in "shared"'),
        (("T[vj / 32 * 32 + 7]", "T[vi * 8]"), "which lane has it is not known"),
        (("thread.x", "thread.y"), None),
        (
            ("C[vi, vj] = T[vj / 32 * 32 + 7]", "T[vj] = T[vj / 32 * 32 + 7]"),
            "which the same threads write",
        ),
        ((" 64", " 48"), "the 48 threads of a block are no whole warps"),
    ],
)
def test_what_no_shuffle_brings_is_refused(change: tuple[str, str], said: str | None) -> None:
    text = lanes("vj / 32 * 32 + 7").replace(*change)
    if said is None:
        check(text)
        return
    with pytest.raises(LowerError) as e:
        lower_device(program(text))
    assert said in str(e.value)


def test_lanes_that_do_not_use_a_value_give_theirs() -> None:
    """A condition that differs between lanes is around what uses the value, and not around the shuffle."""
    text = lanes("vj / 32 * 32 + 7").replace("C[vi", "where j_1 % 3 == 0 and j_1 < 50; C[vi")
    (k,) = check(text.replace("T[vj] =", "C[vi, vj] = 0.0; T[vj] ="))
    assert not any(isinstance(s, If) and any(isinstance(x, Shuffle) for x in inside(s.body)) for s in flat(k.body))


def flat(body: tuple[Device, ...]) -> list[Flat]:
    return [x for s in body if isinstance(s, Phase) for x in inside(s.body)]


def with_fault(p: DeviceProgram, change: Callable[[Flat], tuple[Flat, ...]]) -> DeviceProgram:
    def go(body: tuple[Flat, ...]) -> tuple[Flat, ...]:
        inner = (s if isinstance(s, Store | Shuffle) else replace(s, body=go(s.body)) for s in body)
        return tuple(x for s in inner for x in change(s))

    def phase(s: Device) -> Device:
        return replace(s, body=go(s.body)) if isinstance(s, Phase) else s

    return replace(p, kernels=tuple(replace(k, body=tuple(map(phase, k.body))) for k in p.kernels))


def no_identity(s: Flat) -> tuple[Flat, ...]:
    """Idle lanes and terms beyond the end count as what memory had."""
    return () if isinstance(s, Store) and isinstance(s.value, Const) else (s,)


def one_further(s: Flat) -> tuple[Flat, ...]:
    return (replace(s, by=s.by + 1),) if isinstance(s, Shuffle) and s.by == 4 else (s,)


def some_lanes(s: Flat) -> tuple[Flat, ...]:
    """As with a mask that lacks lanes: the shuffle is under the condition of those that use its value."""
    return (If(Compare("<", Var(THREAD), index(16)), (s,)),) if isinstance(s, Shuffle) and s.by == 16 else (s,)


def all_lanes_add(s: Flat) -> tuple[Flat, ...]:
    return s.body if isinstance(s, If) else (s,)


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (no_identity, ""),
        (one_further, ""),
        (some_lanes, "come to different barriers or instructions"),
        (all_lanes_add, "meet without a barrier between them"),
    ],
)
def test_seeded_faults_are_caught(change: Callable[[Flat], tuple[Flat, ...]], said: str) -> None:
    p, trace = by_shuffles("total", 32, M=2, N=70, T="i32")
    kernels = lower_device(trace.program)
    assert emulate(p, emulation(kernels)).fault == ""
    fault = emulate(p, emulation(with_fault(kernels, change))).fault
    assert fault and said in fault
