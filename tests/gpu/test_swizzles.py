"""Orders of elements in shared memory: no kernel of tensor cores has a bank conflict, and results do not change.

`make gpu DRAWS=20` draws more schedules of each case.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.emulation.run import emulation
from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram
from tensorc_dsl.backend.cuda.lower.lower import lower_device, lower_device_until
from tensorc_dsl.backend.cuda.lower.private_storage import evaluate
from tensorc_dsl.backend.memory import aligned_copy, aligned_empty
from tensorc_dsl.backend.protocol import Traffic
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.annotations import LINE, Swizzle, swizzle_of, swizzled
from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.ir.expr import Load, Var, add, index, rewrite_expr, xor
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program, Store
from tensorc_dsl.lower.flat import Collective, Flat, LowerError
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.schedule.trace.distribution import Decision
from tests.gpu.kernels import ptx
from tests.gpu.tensor_cores import CASES, DRAWS, changed, drawn, hand, run, whole_numbers
from tests.stdlib.gpu_checks import task


def places(s: Swizzle, count: int) -> np.ndarray:
    """The place of each of the first so many elements."""
    return evaluate(swizzled({Var("i"): 1}, 0, s), {"i": np.arange(count, dtype=np.int64)})


@pytest.mark.corpus
@pytest.mark.parametrize(("unit", "size"), [(8, 2), (16, 1), (4, 4), (8, 4), (2, 8), (8, 8), (32, 1)])
def test_units_of_neighbouring_rows_are_in_different_banks(unit: int, size: int) -> None:
    """For rows of each length, whichever unit and whichever row is the first one."""
    whole = LINE // (unit * size)
    for units in range(1, 5 * whole):
        s = swizzle_of(unit, units * unit, size)
        first = (np.arange(3 * whole)[:, None] * units + np.arange(units)[None, :]) * unit
        if s is not None:
            table = places(s, int(first.max()) + unit + s.line)
            assert sorted(table[: len(table) // s.line * s.line]) == list(range(len(table) // s.line * s.line))
            np.testing.assert_array_equal(table[first + unit - 1], table[first] + unit - 1)
            first = table[first]
        banks = first // unit % whole
        for row in range(2 * whole):
            for column in banks[row : row + whole].T:
                assert len(set(column.tolist())) == whole, (units, row)


def test_accesses_a_constant_apart_are_computed_from_one_place() -> None:
    """Rows that move by whole periods are no part of what is permuted."""
    s = Swizzle(8, 3, 3)
    assert swizzle_of(8, 64, 2) == s
    t = Var("thread")
    for n in (512, 1024):
        assert swizzled({t: 8}, n, s) == add(swizzled({t: 8}, 0, s), index(n))


def traffic(found: DeviceProgram, program: Program, inputs: dict[str, Array]) -> list[Traffic]:
    """What the accesses to shared memory cost."""
    arrays = {n: aligned_copy(np.ascontiguousarray(a)) for n, a in inputs.items()}
    arrays |= {b.name: aligned_empty(shape_of(b), stored_dtype(b.dtype)) for b in program.outputs}
    fault, counts = emulation(found).count(arrays, {})
    assert fault == ""
    return [x for c in counts for x in c.traffic if x.shared]


SWIZZLES: dict[str, Decision] = {
    **dict.fromkeys(("banks", "banks_1", "banks_2", "banks_3"), "swizzle"),
    **{f"filled_{n}" if n else "filled": False for n in range(8)},
}
"""The draws of two operands, and those of the next instruction where the first one was refused. Copies that fill in padding
may store element by element."""


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES)
def test_tensor_cores_have_no_bank_conflicts(case: str, tmp_path: Path) -> None:
    """Neither the copies to shared memory nor what fills fragments from it, for each operand and each way it may lie."""
    text, reference = CASES[case]
    t = task(tmp_path, text, "tensor_core")
    inputs, wide = whole_numbers(t.program)
    (name,) = (b.name for b in t.program.outputs)
    for program, found in drawn(t, DRAWS, {"tensor_core": True, **SWIZZLES}):
        accesses = traffic(found, program, inputs)
        assert {x.write for x in accesses} == {True, False}
        assert [x for x in accesses if x.moves != x.least] == []
        _, outputs = emulated(found, program, inputs)
        for out in outputs:
            np.testing.assert_array_equal(out[name], reference(*wide))


SWIZZLED = ('buffer As: f16[32, 16] in "shared"', 'buffer As: f16[32, 16] in "shared" @("swizzle.0", 8)')


def test_a_kernel_by_hand_has_its_rows_in_different_banks() -> None:
    for changes, conflicts in (((), True), ((SWIZZLED,), False)):
        program = hand(*changes)
        found = lower_device(program)
        inputs, _ = whole_numbers(program)
        fills = [x for x in traffic(found, program, inputs) if x.buffer == "As" and not x.write]
        assert any(x.moves > x.least for x in fills) == conflicts
        assert run(program, found) == ("", True)


def test_an_order_of_one_side_alone_is_told_by_the_result() -> None:
    program = hand(SWIZZLED)

    def other(s: Collective) -> Collective | None:
        def load(e: object) -> object:
            return replace(e, indices=(xor(e.indices[0], index(8)),)) if isinstance(e, Load) else e

        def flat(x: Flat) -> Flat:
            if isinstance(x, Store):
                return replace(x, value=rewrite_expr(x.value, load))  # pyright: ignore[reportArgumentType]
            return replace(x, body=tuple(map(flat, x.body)))

        return replace(s, body=tuple(map(flat, s.body))) if s.intrinsic.name == "ldmatrix_a_f16" else None

    assert run(program, changed(lower_device(program), other)) == ("", False)


COPY = """
program p(A: f32[8, 64], C: f32[8, 64]) {
    buffer S: f32[8, 64] in "shared" @("swizzle.0", 4)
    bound("block.x") for b in 1 {
        bound("thread.x") for t in 64 {
            for r in 2 {
                vectorized for v in 4 {
                    block S { spatial vi in 8 = t / 16 + r * 4; spatial vj in 64 = t % 16 * 4 + v; S[vi, vj] = A[vi, vj] }
                }
            }
        }
        bound("thread.x") for t_1 in 64 {
            for r_1 in 2 {
                vectorized for v_1 in 4 {
                    block C {
                        spatial vi in 8 = t_1 / 16 + r_1 * 4; spatial vj in 64 = t_1 % 16 * 4 + v_1
                        C[vi, vj] = S[7 - vi, READ]
                    }
                }
            }
        }
    }
}
"""


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("read", "vector"), [("vj", True), ("(vj + 2) % 62", False), ("63 - vj", False), ("min(vj + 1, 63)", False)]
)
def test_vectors_stay_whole_where_a_unit_has_them(read: str, vector: bool) -> None:
    program = parse_program(Source("p.tsched", COPY.replace("READ", read)))
    found = lower_device(program)
    code = ptx(found, "sm_80")
    assert "st.shared.v4" in code
    assert ("ld.shared.v4" in code) == vector
    a = np.arange(512, dtype=np.float32).reshape(8, 64)
    fault, outputs = emulated(found, program, {"A": a})
    assert fault == ""
    columns = np.arange(64)
    at = {"(vj + 2) % 62": (columns + 2) % 62, "63 - vj": 63 - columns, "min(vj + 1, 63)": np.minimum(columns + 1, 63)}
    for out in outputs:
        np.testing.assert_array_equal(out["C"], a[::-1, at.get(read, columns)])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            (("f32[8, 64] in", "f32[8, 66] in"), ("READ", "vj + 1")),
            "the rows of `S` are `65` elements apart",
        ),
        ((('"swizzle.0", 4', '"swizzle.0", 3'), ("READ", "vj")), "no whole units of 3"),
    ],
)
def test_rows_that_are_no_whole_units_are_refused(changes: tuple[tuple[str, str], ...], why: str) -> None:
    text = COPY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(LowerError, match=why):
        lower_device(parse_program(Source("p.tsched", text)))


def test_a_unit_may_have_more_than_an_instruction_takes_at_once() -> None:
    program = hand((SWIZZLED[0], 'buffer As: f16[32, 32] in "shared" @("swizzle.0", 16)'))
    assert run(program, lower_device(program)) == ("", True)


def test_the_lowered_stage_shows_the_places() -> None:
    program = parse_program(Source("p.tsched", COPY.replace("READ", "vj")))
    assert "xor(" not in lower_device_until(program, "bodies", ("sm_80",))
    assert "xor(" in lower_device_until(program, "swizzles", ("sm_80",))
