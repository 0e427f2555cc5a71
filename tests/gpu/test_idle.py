"""Threads without work: they store constants to private storage, and one branch leads past all that they do not do."""

from __future__ import annotations

import pytest

from tensorc_dsl.backend.cuda.lower.kernels import THREAD, Device, DeviceKernel, Local, Phase, Steps, format_device
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.cuda.lower.private_storage import with_idle_defined
from tensorc_dsl.ir.dtypes import F32, INDEX
from tensorc_dsl.ir.expr import ONE, ZERO, Compare, Const, Expr, Load, Logic, Var, index
from tensorc_dsl.ir.program import Store
from tensorc_dsl.lower.flat import Flat, If
from tests.gpu.kernels import ptx
from tests.gpu.tensor_cores import hand, run

FEW = (
    ("t in 64", "t in 128"), ("t / 2;", "t / 4;"), ("t % 2 * 8 + r", "t % 4 * 4 + r"), ("r in 8 {", "r in 4 {"),
    ("t_1 in 64", "t_1 in 128"), ("t_1 / 4", "t_1 / 8"), ("t_1 % 4 * 2 + r_1", "t_1 % 8 + r_1"), ("r_1 in 2 {", "r_1 in 1 {"),
)  # fmt: skip
"""Four warps copy, and two of them have tiles."""


def test_warps_without_a_tile_take_one_branch() -> None:
    program = hand(*FEW)
    found = lower_device(program)
    said = [
        line
        for line in map(str.strip, format_device(found).splitlines())
        if line.startswith(("mma_", "ldmatrix", "if ", "barrier"))
    ]
    assert [x.partition(" by ")[0] for x in said] == [
        "mma_zero", "barrier", "if thread < 64 {", "ldmatrix_a_f16", "ldmatrix_b_f16", "mma_m16n8k16_f16", "mma_store",
    ]  # fmt: skip
    assert run(program, found) == ("", True)
    assert ptx(found, "sm_80").count("bra") == 2  # and that of the loop of copies


HALF = Compare("<", Var(THREAD), index(64))
LESS = Compare("<", Var(THREAD), index(32))
STEP = Compare("<", Var("s"), ONE)
NUMBER = Const(0.0, F32)
KEPT = Load("x", (ZERO,), F32)


def out(value: Expr = KEPT) -> Store:
    return Store("C", (Var(THREAD),), value)


def kernel(first: Flat, *later: Flat) -> DeviceKernel:
    body: tuple[Device, ...] = (Steps("s", index(2), (Phase((first,)), Phase(later))),)
    grid = (ONE, ONE, ONE)
    return DeviceKernel("k", grid, 128, ("A", "C"), frozenset("C"), (Local("x", F32, 2),), (), 0, body)


def first_of(k: DeviceKernel) -> tuple[Flat, ...]:
    """The first phase in the loop of a kernel."""
    (loop,) = k.body
    assert isinstance(loop, Steps) and isinstance(loop.body[0], Phase)
    return loop.body[0].body


ZEROED = Store("x", (ZERO,), NUMBER)


def test_a_constant_is_stored_by_all_threads() -> None:
    assert first_of(with_idle_defined(kernel(If(HALF, (ZEROED,)), If(HALF, (out(),))))) == (ZEROED,)
    both = If(Logic("and", HALF, STEP), (ZEROED,))
    assert first_of(with_idle_defined(kernel(both, If(HALF, (out(),))))) == (If(STEP, (ZEROED,)),)


STAYS: dict[str, tuple[Flat, ...]] = {
    "all read it": (If(HALF, (ZEROED,)), out()),
    "others read it": (If(LESS, (ZEROED,)), If(HALF, (out(),))),
    "others have stored another value": (If(HALF, (ZEROED,)), If(LESS, (Store("x", (ZERO,), NUMBER),)), out()),
    "it is in a condition": (If(HALF, (ZEROED,)), If(Compare("<", KEPT, NUMBER), (out(NUMBER),))),
    "it is no constant": (If(HALF, (Store("x", (ZERO,), Load("A", (ZERO,), F32)),)), If(HALF, (out(),))),
    "each thread stores elsewhere": (If(LESS, (Store("x", (Var(THREAD),), NUMBER),)), If(LESS, (out(),))),
    "something else is stored": (If(HALF, (ZEROED, out(NUMBER))), If(HALF, (out(),))),
    "the condition is one of a loop": (If(STEP, (ZEROED,)), If(STEP, (out(),))),
    "the condition has data": (
        If(Compare("<", Load("A", (Var(THREAD),), INDEX), ONE), (ZEROED,)),
        If(Compare("<", Load("A", (Var(THREAD),), INDEX), ONE), (out(),)),
    ),
}


@pytest.mark.parametrize("case", STAYS)
def test_other_conditions_stay(case: str) -> None:
    first, *later = STAYS[case]
    assert first_of(with_idle_defined(kernel(first, *later))) == (first,)
