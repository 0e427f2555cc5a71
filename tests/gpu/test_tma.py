"""TMA loads: kernels that wait for them at mbarriers are exact, and what is wrong with one is found."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.compiled import assemble, sass_of, tool
from tensorc_dsl.backend.cuda.emulation import blocks
from tensorc_dsl.backend.cuda.emulation.run import emulation
from tensorc_dsl.backend.cuda.emulation.statements import Threads
from tensorc_dsl.backend.cuda.lower.kernels import (
    Device,
    InitMbarriers,
    Steps,
    TmaLoad,
    WaitMbarrier,
    format_device,
    tma_loads_in,
)
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.cuda.maps import Encoding, encoding_of
from tensorc_dsl.backend.cuda.model.counts import counted
from tensorc_dsl.backend.memory import aligned_copy
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.expr import ZERO, Expr, add, index
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.lower.flat import LowerError, TensorMap
from tests.gpu.kernels import ptx, without_barrier
from tests.gpu.tensor_cores import run, whole_numbers
from tests.gpu.test_pipeline_faults import changed

FEATURES = ("sm_80", "sm_90", "sm_90a")

BOX = """
intrinsic box
    desc (D: f16[8, COLUMNS] in "shared.tile", S: f16[8, COLUMNS] in "global.tile") { D[i, j] = S[i, j] }
    layout "shared.tile" (i, j) -> (line: i, element: j, swizzle: SWIZZLE)
    layout "global.tile" (i, j) -> (line: i, element: j, swizzle: 0)
    lower cuda requires "sm_90a" asm "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [D], [S];"
"""

HAND = """
program p(A: f16[16, STEPS * COLUMNS], B: f16[STEPS * COLUMNS, COLUMNS], C: f32[16, COLUMNS]) {
    buffer As: f16[16, COLUMNS] in "shared" SWIZZLED
    buffer Bs: f16[COLUMNS, COLUMNS] in "shared" SWIZZLED
    bound("block.x") for b in 1 {
        pipelined for s in 5 @("pipeline.asynchronous", "0") @("pipeline.order", "0, 1, 2") @("pipeline.stages", "0, 0, 2") {
            for r in 2 {
                tensorized for i in 8 @("intrinsic", "box") {
                    tensorized for k in COLUMNS {
                        block As {
                            spatial vi in 16 = r * 8 + i; spatial vk in COLUMNS = k; spatial vs in 5 = s
                            As[vi, vk] = A[vi, vs * COLUMNS + vk]
                        }
                    }
                }
            }
            for q in COLUMNS / 8 {
                tensorized for k_1 in 8 @("intrinsic", "box") {
                    tensorized for j in COLUMNS {
                        block Bs {
                            spatial vk in COLUMNS = q * 8 + k_1; spatial vj in COLUMNS = j; spatial vs in 5 = s
                            Bs[vk, vj] = B[vs * COLUMNS + vk, vj]
                        }
                    }
                }
            }
            bound("thread.x") for t in 64 {
                for j_1 in COLUMNS / 4 {
                    for k_2 in COLUMNS {
                        block C {
                            spatial vi in 16 = t / 4; spatial vj in COLUMNS = t % 4 * (COLUMNS / 4) + j_1
                            reduce vk in STEPS * COLUMNS = s * COLUMNS + k_2
                            init { C[vi, vj] = 0.0 }
                            C[vi, vj] = C[vi, vj] + f32(As[vi, vk % COLUMNS]) * f32(Bs[vk % COLUMNS, vj])
                        }
                    }
                }
            }
        }
    }
}
"""

PIPELINE = re.compile(r'pipelined (for s in 5).*"0, 0, 2"\)')


def hand(swizzle: int = 64, *, ahead: bool = True, changes: tuple[tuple[str, str], ...] = ()) -> Program:
    """A product whose factors TMA loads, two iterations ahead or at once. Lines have the bytes of the swizzle."""
    columns = max(swizzle, 16) // 2
    text = BOX + HAND
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    text = text if ahead else PIPELINE.sub(r"\1", text)
    text = text.replace("SWIZZLED", '@("swizzle.0", 8)' if swizzle else "").replace("SWIZZLE", str(swizzle))
    for name, value in (("COLUMNS / 8", columns // 8), ("COLUMNS / 4", columns // 4)):
        text = text.replace(name, str(value))
    text = re.sub(r"(\d+|STEPS) \* COLUMNS", lambda m: str(int(m[1].replace("STEPS", "5")) * columns), text)
    return parse_program(Source("p.tsched", text.replace("COLUMNS", str(columns))))


@pytest.mark.corpus
@pytest.mark.parametrize(("swizzle", "ahead"), [(0, True), (32, False), (64, True), (64, False), (128, True)])
def test_tma_loads_are_exact_in_each_order_of_memory(swizzle: int, ahead: bool) -> None:
    program = hand(swizzle, ahead=ahead)
    assert run(program, lower_device(program, FEATURES)) == ("", True)


OPEN = (
    ("A: f16[16, STEPS * COLUMNS]", "A: f16[M, STEPS * COLUMNS]"),
    ("f32[16, COLUMNS]) {", "f32[16, COLUMNS]) where M in 1..16 {"),
    ("A[vi, vs * COLUMNS + vk]", "A[vi, vs * COLUMNS + vk] if vi < M else 0.0"),
)
"""The first factor has as many rows as a call says."""

INSIDE = "vs * COLUMNS + vk < 152"

PADDED = (
    ("A: f16[16, STEPS * COLUMNS]", "A: f16[11, 152]"),
    ("B: f16[STEPS * COLUMNS, COLUMNS]", "B: f16[152, 24]"),
    ("A[vi, vs * COLUMNS + vk]", f"A[vi, vs * COLUMNS + vk] if vi < 11 and {INSIDE} else 0.0"),
    ("B[vs * COLUMNS + vk, vj]", f"B[vs * COLUMNS + vk, vj] if {INSIDE} and vj < 24 else 0.0"),
)
"""What copies fill in is what is outside of the arrays."""


@pytest.mark.parametrize("ahead", [True, False])
def test_what_is_outside_of_an_array_is_zero(ahead: bool) -> None:
    program = hand(ahead=ahead, changes=PADDED)
    inputs, (a, b) = whole_numbers(program)
    fault, outputs = emulated(lower_device(program, FEATURES), program, inputs)
    expected = np.zeros((16, 32))
    expected[:11, :24] = a @ b
    assert fault == "" and all(np.array_equal(x["C"], expected) for x in outputs)


def test_open_sizes_are_those_of_the_call() -> None:
    """The rows of an array are the open size, and what is beyond them is zero."""
    program = hand(changes=OPEN)
    kernels = emulation(lower_device(program, FEATURES))
    rng = np.random.default_rng(0)
    b = rng.integers(-4, 5, (160, 32)).astype(np.float16)
    for rows in (1, 7, 16):
        a = rng.integers(-4, 5, (rows, 160)).astype(np.float16)
        out = np.full((16, 32), np.nan, np.float32)
        arrays = {"A": aligned_copy(a), "B": aligned_copy(b), "C": aligned_copy(out)}
        assert kernels.run(arrays, {"M": rows}, "forward") == ""
        expected = np.zeros((16, 32))
        expected[:rows] = a.astype(float) @ b.astype(float)
        np.testing.assert_array_equal(arrays["C"], expected)


def test_an_array_that_may_be_empty_has_no_map() -> None:
    with pytest.raises(LowerError) as e:
        lower_device(hand(changes=(*OPEN, ("M in 1..16", "M in 0..16"))), FEATURES)
    assert str(e.value) == "box takes arrays that have elements, and `A` may have none"


@pytest.mark.parametrize("other", ["vi < 10", "vi < 12", "vi >= 1 and vi < 11", "vi * vi < 121"])
def test_other_zeros_are_no_tile(other: str) -> None:
    """Fewer rows, one that would be outside, others, and those of which it is not known."""
    with pytest.raises(LowerError) as e:
        lower_device(hand(changes=(*PADDED, ("vi < 11", other))), FEATURES)
    assert str(e.value) == "it is not known to store zeros where it is outside of `A`, and only there"


def test_what_stands_around_tma_loads_is_placed() -> None:
    """Those of a round come to one mbarrier, with the bytes of all; the next are loaded before those of this round are
    waited for, behind one barrier. The first one is for what initialises mbarriers."""
    text = format_device(lower_device(hand(), FEATURES))
    lines = [x.strip() for x in text.splitlines()]
    said = [x for x in lines if x.startswith(("mbarrier.", "one", "barrier", "for s", "if s"))]
    assert said == [
        "mbarrier.init of 3 mbarriers, arrival counts 1, 1, 1",
        "barrier",
        "for s.first in 0 .. 2 {",
        "one thread starts TMA loads, expect_tx 3072 bytes at mbarrier s.first % 3 {",
        "for s in 0 .. 5 {",
        "if s + 2 < 5 {",
        "barrier",
        "one thread starts TMA loads, expect_tx 3072 bytes at mbarrier (s + 2) % 3 {",
        "mbarrier.try_wait s % 3",
    ]


def test_what_is_not_run_ahead_is_loaded_together_and_waited_for_at_once() -> None:
    text = format_device(lower_device(hand(ahead=False), FEATURES))
    said = [x for x in map(str.strip, text.splitlines()) if x.startswith(("mbarrier.", "one", "barrier"))]
    assert said == [
        "mbarrier.init of 2 mbarriers, arrival counts 1, 1",
        "barrier",
        "barrier",
        "one thread starts TMA loads, expect_tx 1024 bytes at mbarrier 0 {",
        "one thread starts TMA loads, expect_tx 2048 bytes at mbarrier 1 {",
        "mbarrier.try_wait 0",
        "mbarrier.try_wait 1",
    ]


UNDER_WAY = r"to which an asynchronous copy is in flight"
NOTHING = r"waits at an mbarrier, and not all the bytes of its expect_tx come"


@pytest.mark.corpus
@pytest.mark.parametrize(("steps", "number", "said"), [(5, 1, NOTHING), (2, 0, "not initialised")])
def test_a_missing_barrier_is_found(steps: int, number: int, said: str) -> None:
    """That in the loop is for what is loaded where threads still read, or wait: one that is late waits for a phase with the
    parity of the next. The first one is for what initialises mbarriers."""
    program = hand(changes=(("in 5 @", f"in {steps} @"), ("vs in 5", f"vs in {steps}"), ("STEPS", str(steps))))
    found = lower_device(program, FEATURES)
    assert run(program, found) == ("", True)
    fewer = tuple(without_barrier(k, number) for k in found.kernels)
    assert said in run(program, replace(found, kernels=fewer))[0]


def removed(kind: type[Device]) -> Callable[[Device], Device | None]:
    return lambda s: None if isinstance(s, kind) else s


def fetch(**changes: Callable[[Any], Any]) -> Callable[[Device], Device | None]:
    """What loads, with other values of its fields."""
    return lambda s: replace(s, **{k: f(getattr(s, k)) for k, f in changes.items()}) if isinstance(s, TmaLoad) else s


def elsewhere(s: Device) -> Device:
    """What is waited for is the next iteration's mbarrier."""
    return replace(s, at=other(s.at)) if isinstance(s, WaitMbarrier) else s


def other(at: Expr) -> Expr:
    return ZERO if at != ZERO else index(1)


FAULTS: dict[str, tuple[Callable[[Device], Device | None], str]] = {
    "no wait": (removed(WaitMbarrier), UNDER_WAY),
    "another mbarrier": (elsewhere, rf"{UNDER_WAY}|{NOTHING}"),
    "too few bytes": (fetch(size=lambda n: n - 512), UNDER_WAY),
    "half of the bytes": (fetch(size=lambda n: n // 2), UNDER_WAY),
    "too many bytes": (fetch(size=lambda n: n + 512), NOTHING),
    "one tile less": (fetch(body=lambda body: body[:1]), NOTHING),
    "not set up": (removed(InitMbarriers), r"uses an mbarrier that is not initialised"),
    "nothing is loaded": (removed(TmaLoad), NOTHING),
}


@pytest.mark.corpus
@pytest.mark.parametrize("case", FAULTS)
def test_what_is_wrong_around_tma_loads_is_found(case: str) -> None:
    change, said = FAULTS[case]
    program = hand()
    fault, _ = run(program, changed(lower_device(program, FEATURES), change))
    assert re.search(said, fault), fault


@pytest.mark.parametrize("first", [True, False])
def test_a_wrong_parity_is_found(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one, which is that of the phase before, and always that of the first phase, which is over when an mbarrier is
    used again."""
    plain = Threads.await_phase

    def wrong(self: Threads, at: str, parity: str) -> None:
        plain(self, at, "0" if first else self.f.op(f"xor i32 {parity}, 1"))

    monkeypatch.setattr(Threads, "await_phase", wrong)
    program = hand()
    fault, _ = run(program, lower_device(program, FEATURES))
    assert re.search(UNDER_WAY, fault), fault


MAPS: dict[str, Callable[[Encoding], Encoding]] = {
    "a longer tile": lambda e: replace(e, box=(e.box[0], 2 * e.box[1])),
    "a wider row": lambda e: replace(e, strides=tuple(add(x, index(16)) for x in e.strides)),
    "a smaller array": lambda e: replace(e, sizes=(index(16), *e.sizes[1:])),
    "a wider swizzle": lambda e: replace(e, swizzle=3),
}


def encode_wrongly(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps are others than those of the kernel."""

    def wrong(m: TensorMap) -> Encoding:
        return MAPS[case](encoding_of(m))

    monkeypatch.setattr(blocks, "encoding_of", wrong)


@pytest.mark.corpus
@pytest.mark.parametrize("case", MAPS)
def test_a_wrong_map_is_found(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a fault, or by the result."""
    encode_wrongly(case, monkeypatch)
    program = hand()
    fault, right = run(program, lower_device(program, FEATURES))
    assert fault or not right


def test_what_tma_loads_move_is_counted() -> None:
    """Five rounds load two tiles of the one factor and four of the other: eight rows of two sectors each."""
    program = hand()
    (k,) = lower_device(program, FEATURES).kernels
    inputs, _ = whole_numbers(program)
    fault, (counts,) = emulation(lower_device(program, FEATURES)).count(
        {**inputs, "C": np.zeros((16, 32), np.float32)}, {}
    )
    assert fault == ""
    found = {(x.into, x.buffer): (x.requests, x.moves, x.least) for x in counts.traffic if x.into in ("As", "Bs")}
    assert found == {
        ("As", "A"): (10, 160, 160), ("As", "As"): (10, 40, 40), ("Bs", "B"): (20, 320, 320), ("Bs", "Bs"): (20, 80, 80),
    }  # fmt: skip
    only = replace(k, body=tuple(replace(x, body=tuple(tma_loads_in(x.body))) for x in k.body if isinstance(x, Steps)))
    bytes_of = {"A": 2, "B": 2, "C": 4}
    model = counted(only, {}, bytes_of)  # without the guards, in two rounds before the loop and five in it
    assert (model.sectors, model.passes) == (7 * 3072 / 32, 7 * 3072 / 128)
    assert model.requests["tile"] == 7 * 6 * -(-k.threads // 32), "each warp passes the loads that one thread starts"


@pytest.mark.parametrize("swizzle", [0, 128])
def test_ptxas_takes_it(swizzle: int, tmp_path: Any) -> None:
    code = ptx(lower_device(hand(swizzle), FEATURES), "sm_90a")
    assert code.count("mbarrier.init") == 3 and "cp.async.bulk.tensor.2d" in code and ".local" not in code
    if tool("ptxas") is not None:
        said = assemble(code, "sm_90a", tmp_path / "k.cubin")
        assert set(re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", said)) == {"0"}
    if tool("ptxas") is not None and tool("nvdisasm") is not None:
        machine = sass_of(code, "sm_90a")
        assert "UTMALDG.2D" in machine and "SYNCS" in machine


NO_BOX = (
    "`S` of box is no tile of `A`: each dimension has to be one of the array, in its order and with steps of 1, and the last"
    " one its last"
)

REFUSED: dict[str, tuple[tuple[tuple[str, str], ...], str]] = {
    "threads around": (
        (("for r in 2 {", 'bound("thread.y") for r in 2 {'),),
        "box is inside of `r`, which counts threads, and one thread starts a TMA load; leave its loops unbound",
    ),
    "no swizzle": (
        (("SWIZZLED\n    buffer Bs", "\n    buffer Bs"),),
        (
            "box takes `D` with a swizzle of 64 bytes, and `As` has none; `storage_swizzle` it in units of 8 elements, with"
            " rows of 32"
        ),
    ),
    "rows at odd places": (
        (("A: f16[16, STEPS * COLUMNS]", "A: f16[16, 164]"),),
        (
            "box takes arrays whose rows are multiples of 16 bytes apart, and those of `A` are `164` elements of 2 bytes"
            " apart"
        ),
    ),
    "more rows than numbers of 32 bits": (
        (("A: f16[16, STEPS * COLUMNS]", "A: f16[2147483648, STEPS * COLUMNS]"),),
        "box takes arrays of up to 2147483647 elements along a dimension, and `A` has more",
    ),
    "rows that are not adjacent": (
        (("As: f16[16,", "As: f16[32,"), ("As[vi, vk] =", "As[vi * 2, vk] ="), ("As[vi, vk %", "As[vi * 2, vk %")),
        (
            "box takes `D` in lines of 64 bytes, eight of them in a row, and those of `As` are not so: its elements are 64"
            " and 1 apart; let the rows of `As` have 32 elements"
        ),
    ),
    "a turned array": (
        (
            ("A: f16[16, STEPS * COLUMNS]", "A: f16[STEPS * COLUMNS, 16]"),
            ("vi, vs * COLUMNS + vk", "vs * COLUMNS + vk, vi"),
        ),
        NO_BOX,
    ),
    "every second row": (
        (("A: f16[16, STEPS * COLUMNS]", "A: f16[32, STEPS * COLUMNS]"), ("A[vi, vs", "A[vi * 2, vs")),
        NO_BOX,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_tile_can_be_is_refused(case: str) -> None:
    changes, message = REFUSED[case]
    with pytest.raises(LowerError) as e:
        lower_device(hand(changes=changes), FEATURES)
    assert str(e.value) == message


def test_a_gpu_without_tma_is_told() -> None:
    with pytest.raises(LowerError) as e:
        lower_device(hand(), FEATURES[:2])
    assert str(e.value) == "box is for GPUs that are sm_90a, and this one is sm_80, sm_90; draw a schedule for it"
