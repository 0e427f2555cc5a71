"""Seeded faults of pipelines: a wait for too few, a wrong version, one barrier or commit less, an address not aligned."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.codegen.device import DeviceStatements
from tensorc_dsl.backend.cuda.lower import async_copies, pipelines
from tensorc_dsl.backend.cuda.lower.kernels import CommitGroup, Device, DeviceProgram, Nested, Phase, WaitGroup
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.llvm.codegen.expressions import Expressions
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.expr import Expr, Load, Select, Var, add, index, rewrite_expr, substitute
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Buffer, For, Store
from tensorc_dsl.lower.flat import Flat
from tensorc_dsl.proof.sets.dependence import versions
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import interpret
from tests.gpu.test_barriers import check_each_is_needed
from tests.gpu.test_pipelines import COLUMNS, pipe, product


def changed(p: DeviceProgram, change: Callable[[Device], Device | None]) -> DeviceProgram:
    """The kernels with some of their statements changed, or removed."""

    def go(body: tuple[Device, ...]) -> tuple[Device, ...]:
        out: list[Device] = []
        for s in body:
            if isinstance(s, Nested):
                s = replace(s, body=go(s.body))
            new = change(s)
            out += [] if new is None else [new]
        return tuple(out)

    return replace(p, kernels=tuple(replace(k, body=go(k.body)) for k in p.kernels))


def late(s: Device) -> Device:
    return replace(s, groups=s.groups + 1) if isinstance(s, WaitGroup) else s


def no_wait(s: Device) -> Device | None:
    return None if isinstance(s, WaitGroup) else s


def no_commit(s: Device) -> Device | None:
    return None if isinstance(s, CommitGroup) else s


def other_version(s: Device) -> Device:
    """What reads T reads the version of the next iteration."""

    def expr(e: Expr) -> Expr:
        later = {"i": add(Var("i"), index(1))}
        return replace(e, indices=tuple(substitute(x, later) for x in e.indices)) if isinstance(e, Load) else e

    def stmt(x: Flat) -> Flat:
        if isinstance(x, Store):
            return replace(x, value=rewrite_expr(x.value, expr)) if x.buffer == "C" else x
        return replace(x, body=tuple(map(stmt, x.body)))

    return replace(s, body=tuple(map(stmt, s.body))) if isinstance(s, Phase) else s


@pytest.mark.corpus
@pytest.mark.parametrize("change", [late, no_wait, no_commit, other_version])
@pytest.mark.parametrize("stage", ["0, 1", "0, 2"])
def test_a_wait_for_too_few_and_a_wrong_version_are_found(
    change: Callable[[Device], Device | None], stage: str
) -> None:
    p = pipe(stage)
    fault, _ = emulated(changed(lower_device(p), change), p, make_inputs(p, 0))
    assert re.search(
        r"accesses element \d+ of `T` in `C\[.*to which an asynchronous copy is in flight|meet without a barrier.*of `T`",
        fault,
    )


@pytest.mark.corpus
def test_each_barrier_of_a_pipeline_is_needed() -> None:
    p = product("0, 0, 2")
    kernels = lower_device(p)
    assert check_each_is_needed(kernels, p) == 1


@pytest.mark.corpus
def test_too_few_versions_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fewer(loop: For, buffer: Buffer) -> int:
        return versions(loop, buffer) - 1

    monkeypatch.setattr(pipelines, "versions", fewer)
    p = pipe("0, 2")
    assert "to which an asynchronous copy is in flight" in emulated(lower_device(p), p, make_inputs(p, 0))[0]


PADDED = "A[vi, vj - 4] if vj >= 4 else 0.0"


@pytest.mark.corpus
@pytest.mark.parametrize(("less", "none"), [(4, 0), (0, 4)])
def test_a_copy_of_padding_that_reads_an_element_too_few_or_too_many_is_found(
    less: int, none: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One element less is a zero too many; where nothing is to be read, the place is outside of the array."""

    def other(self: DeviceStatements, size: int, cond: str, kind: str) -> str:
        return self.f.op(f"select i1 {cond}, {kind} {size - less}, {kind} {none}")

    p = pipe("0, 2", value=PADDED)
    inputs = make_inputs(p, 0)
    expected = interpret(p, inputs, "forward")["C"]
    fault, found = emulated(lower_device(p), p, inputs)
    assert fault == "" and all(np.array_equal(x["C"], expected) for x in found)
    monkeypatch.setattr(DeviceStatements, "bytes_read", other)
    fault, found = emulated(lower_device(p), p, inputs)
    assert fault != "" or not any(np.array_equal(x["C"], expected) for x in found)


@pytest.mark.corpus
def test_a_condition_of_padding_that_holds_too_often_is_found() -> None:
    p = pipe("0, 2", value=PADDED)

    def always(s: Device) -> Device:
        def stmt(x: Flat) -> Flat:
            if isinstance(x, Store):
                return replace(x, value=x.value.then) if isinstance(x.value, Select) else x
            return replace(x, body=tuple(map(stmt, x.body)))

        return replace(s, body=tuple(map(stmt, s.body))) if isinstance(s, Phase) else s

    fault, _ = emulated(changed(lower_device(p), always), p, make_inputs(p, 0))
    assert "outside of `A`" in fault or "out of bounds" in fault


@pytest.mark.corpus
def test_a_copy_to_an_address_that_is_not_aligned_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_copies, "is_multiple", lambda *_: True)
    p = parse_program(Source("p.tsched", COLUMNS.replace("KIND", "f32").replace("COLUMNS", "35").replace("LANES", "4")))
    assert "whose address is not a multiple of 16" in emulated(lower_device(p), p, make_inputs(p, 0))[0]


@pytest.mark.corpus
def test_a_vector_at_an_address_that_is_not_aligned_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Expressions, "is_multiple", lambda *_: True)
    text = COLUMNS.replace("KIND", "f32").replace("COLUMNS", "35").replace("LANES", "4")
    p = parse_program(Source("p.tsched", text.replace('@("pipeline.asynchronous", "0") ', "")))
    assert "whose address is not a multiple of 16" in emulated(lower_device(p), p, make_inputs(p, 0))[0]
