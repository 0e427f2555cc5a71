"""Mutants of right programs, one place changed in each, are found: `python -m campaigns.mutants --seed 1 --count 300`.

A scheduled program is that of random steps (`schedules`), of a page of tests (`scheduled_pages`), or of a space for GPUs. A
mutant of it (`mutations`) is proved or refuted by `proof.equivalence.validate`, and both programs are interpreted in every
order of the loops that run at once, on several inputs: small numbers, numbers of which no two are equal, NaN and
infinities, ends of types. A proof of a mutant of which a run differs is wrong, and so is a refutation of one of which none
does. A mutant of a kernel (`kernel_mutations`) lacks a barrier or waits for too little; it is emulated. Either that reports
a fault, or the results are to be right on every GPU: those mutants are listed, for a person to look at.

Failures are written to build/mutants/.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from difflib import unified_diff
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Literal, get_args

import numpy as np

import tensorc_dsl as td
from campaigns.emulated import emulated, is_bound
from campaigns.judge import ORDERS, Judge
from campaigns.kernel_mutations import kernel_mutants
from campaigns.mutations import OPERATORS
from campaigns.random_nests import random_nests
from campaigns.random_programs import random_program
from campaigns.random_steps import random_schedule
from campaigns.scheduled_pages import random_start, scheduled
from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram, format_device
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.base.diagnostic import render
from tensorc_dsl.ir.arrays import Array, narrow
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import (
    Program,
)
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.ir.verify import ProgramError, verify
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.proof.equivalence.validate import Invalid, Unproved, Valid, validate
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.inputs import Special, make_inputs, special_inputs
from tensorc_dsl.reference.interpret import FILLS, InterpretError, Order, interpret
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.handlers import condition

OUT = Path("build/mutants")
BATCH = 10
"""Mutants that a process is given at a time."""
ENDLESS = 300
"""Seconds after which a mutant stops the run: no proof is allowed so much."""

Kind = Literal["programs", "kernels"]
Outcome = Literal["equivalent", "refuted", "unproved", "wrong accept", "false refutation", "crash", "found", "silent"]
UNWRITTEN = "is read before it is written"
ALL_ORDERS: tuple[Order, ...] = (*ORDERS, "together")
WRONG: tuple[Outcome, ...] = ("wrong accept", "false refutation", "crash")


@dataclass(frozen=True, slots=True)
class Mutant:
    """What became of a mutant: the operator, where the program was from, and facts if it is to be looked at."""

    number: int
    operator: str
    source: str
    outcome: Outcome
    text: str = ""


@dataclass(frozen=True, slots=True)
class Right:
    """A scheduled program that computes what the original does."""

    original: Program
    scheduled: Program
    source: str


# --- programs -----------------------------------------------------------------------------------------------------------

SMALL = (
    "matmul(M=9, N=6, K=21)", "softmax(M=5, N=7)", "layer_norm(M=3, N=9)", "quantized_matmul(M=8, N=6, K=24)",
    "conv2d_nhwc(N=1, H=5, W=4, CI=5, KH=3, KW=3, CO=4)",
)  # fmt: skip
"""Operators for GPUs at small sizes."""

PRODUCTS = """
compute right_turned(A: f16[M, K], B: f16[N, K]) -> C: f32[M, N] {
    C[i, j] = sum[k] f32(A[i, k]) * f32(B[j, k])
}
"""

HOPPER: Mapping[str, tuple[str, Mapping[str, Decision]]] = {
    "wgmma": ("right_turned(M=64, N=64, K=64)", {}),
    "wgmma, rounds": ("right_turned(M=64, N=64, K=256)", {}),
    "wgmma, tma": ("right_turned(M=64, N=64, K=320)", {"copied": "tma", "copied_1": "tma", "ahead": 2}),
    "wgmma, copies ahead": ("right_turned(M=64, N=64, K=320)", {"ahead": 1}),
    "wgmma, roles": (
        "right_turned(M=128, N=64, K=448)",
        {"inner": (1, 2, 1, 64), "copied": "tma", "copied_1": "tma", "beside": True, "ahead": 2},
    ),
}
"""Products by instructions of warpgroups, and draws that are decided."""


@cache
def _ampere(text: str) -> td.Task:
    head = "use std.ops\nuse std.gpu.default.{default}\nuse std.gpu.targets.{sm_80}\n"
    return td.loads(f"{head}task t = {text} with default")["t"]


@cache
def _hopper(name: str, seed: int) -> tuple[Program, Program, DeviceProgram]:
    text, decisions = HOPPER[name]
    head = f"use std.gpu.hopper\nuse std.gpu.targets.{{sm_90a}}\n{PRODUCTS}"
    t = td.loads(f"{head}task t = {text} with hopper")["t"]
    trace = t.drawn_from(condition(t.model, {"warpgroups": True, **decisions})).sample(seed)
    found = t.lower(trace)
    assert isinstance(found, DeviceProgram)
    return t.program, trace.program, found


def _drawn(rng: random.Random) -> Iterator[Right]:
    """Right programs without an end."""
    while True:
        match rng.choices(("steps", "nests", "page", "gpu", "hopper"), (30, 20, 40, 10, 0.4))[0]:
            case "steps":
                original, task = random_program(rng)
                yield Right(original, random_schedule(original, rng, 20)[0], task)
            case "nests":
                original = random_nests(rng)
                yield Right(original, random_schedule(original, rng, 12)[0], "loops")
            case "page":
                page = random_start(rng)
                yield Right(*scheduled(page.text, page.steps), page.name)
            case "gpu":
                task = _ampere(rng.choice(SMALL))
                yield Right(task.program, task.sample(rng.randrange(40)).program, f"gpu {task.program.name}")
            case _:
                name = "wgmma"
                yield Right(*_hopper(name, rng.randrange(2))[:2], name)


def _distinct(program: Program, seed: int) -> dict[str, Array]:
    """Inputs in which no two elements are equal where that is possible, but for those of places."""
    out = make_inputs(program, seed)
    rng = np.random.default_rng(seed)
    for p in program.inputs:
        if p.dtype.is_float:
            numbers = np.arange(out[p.name].size, dtype=np.float64).reshape(shape_of(p)) + 1
            out[p.name] = narrow(rng.permutation(numbers.ravel()).reshape(numbers.shape), p.dtype)
    return out


def _inputs(program: Program, seed: int) -> Iterator[dict[str, Array]]:
    """Small numbers, numbers that are not equal, NaN and infinities, and all special values."""
    yield make_inputs(program, seed)
    yield _distinct(program, seed)
    yield special_inputs(program, seed, 0.2, (Special.NONFINITE,))
    yield special_inputs(program, seed, 0.3, tuple(Special))


@dataclass(slots=True)
class Truth:
    """Runs of a right program at some sizes and inputs, on which the original has results and the scheduled has the same."""

    right: Right
    seed: int
    runs: int = 0
    """The pairs of sizes and inputs at which mutants have been run."""

    def differs(self, mutant: Program, inputs: Mapping[str, Array] | None = None) -> str:
        """How a run of the mutant differs, "" if none does, on the given inputs if there are any."""
        if inputs and not mutant.dims:
            return _difference(Judge(self.right.original, stages=False, given=inputs, orders=ALL_ORDERS), mutant)
        for sizes, judge in self._judges():
            self.runs += 1
            if fault := _difference(judge, bind(mutant, sizes)):
                return f"{sizes or ''} {fault}".strip()
        return ""

    def _judges(self) -> Iterator[tuple[dict[str, int], Judge]]:
        rng = random.Random(self.seed)
        dims = self.right.original.dims
        for _ in range(3 if dims else 1):
            sizes = {d.name: rng.randint(d.low, min(d.high or d.low + 12, d.low + 12)) for d in dims}
            original, scheduled = bind(self.right.original, sizes), bind(self.right.scheduled, sizes)
            for inputs in _inputs(original, self.seed):
                try:
                    judge = Judge(original, stages=False, given=inputs, orders=ALL_ORDERS)
                    if not judge.compared(interpret(scheduled, inputs)):
                        yield sizes, judge
                except InterpretError:
                    continue


def _difference(judge: Judge, mutant: Program) -> str:
    """How a run differs. A read of an element that nothing has written is no difference where results do not depend on what
    the memory holds."""
    fault = judge.differs(mutant)
    if UNWRITTEN not in fault:
        return fault
    every = (judge.differs(mutant, fill) for fill in FILLS)
    return next((f"with memory that was not cleared: {f}" for f in every if f), "")


def program_mutant(rng: random.Random, number: int) -> Mutant:
    """A mutant of a program, judged. Operators that apply at few places are as likely as others."""
    for right in _drawn(rng):
        operator = rng.choice(sorted(OPERATORS))
        found = list(OPERATORS[operator](right.scheduled))
        if not found:
            continue
        mutant = rng.choice(found)()
        try:
            verify(mutant)
        except ProgramError:
            continue
        if mutant.outputs != right.original.outputs or mutant == right.scheduled:
            continue
        truth = Truth(right, number)
        outcome, why = judged(right, mutant, truth)
        if truth.runs or outcome == "crash":
            text = why if outcome in ("refuted", "equivalent") else written(right, mutant, operator, why)
            return Mutant(number, operator, right.source, outcome, text)
    raise AssertionError("programs are drawn without an end")


def judged(right: Right, mutant: Program, truth: Truth) -> tuple[Outcome, str]:
    """What the validator finds, beside what runs find; and why."""
    try:
        report = validate(right.original, mutant)
        inputs = report.inputs if isinstance(report, Invalid) else None
        fault = truth.differs(mutant) or (truth.differs(mutant, inputs) if inputs else "")
    except Exception:
        return "crash", traceback.format_exc()
    match report:
        case Valid():
            if not fault and is_bound(mutant):
                fault = _emulated(right.original, mutant)
            return ("wrong accept", fault) if fault else ("equivalent", "")
        case Invalid(diagnostic=d):
            return ("refuted", fault) if fault else ("false refutation", render(d))
        case Unproved(diagnostic=d):
            return "unproved", f"{d.message}\na run: {fault or 'does not differ'}"


def _emulated(original: Program, mutant: Program) -> str:
    """What is wrong with the kernels of the mutant, if it is one that has some."""
    if mutant.dims:
        return ""
    try:
        device = lower_device(mutant, ("sm_80", "sm_90", "sm_90a"))
    except LowerError:
        return ""
    return _kernel_fault(device, mutant, Judge(original, stages=False))


def written(right: Right, mutant: Program, operator: str, why: str) -> str:
    """A mutant as text, with what was found."""
    parts = {"original": right.original, "scheduled": right.scheduled, "mutant": mutant}
    programs = "".join(f"\n// --- {name}\n{format_program(p)}\n" for name, p in parts.items())
    return f"{operator}, {right.source}\n{why}\n{programs}"


# --- kernels ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kernels:
    """Right kernels, with inputs of whole numbers on which results are exact."""

    program: Program
    device: DeviceProgram
    judge: Judge


@cache
def _kernels(name: str, seed: int) -> Kernels:
    if name in HOPPER:
        original, program, device = _hopper(name, seed)
    else:
        task = _ampere(name)
        original, program = task.program, task.sample(seed).program
        device = lower_device(program, ("sm_80",))
    given = {n: np.rint(a * 4).astype(a.dtype) for n, a in make_inputs(original, seed).items()}
    return Kernels(program, device, Judge(original, stages=False, given=given))


def _kernel_fault(device: DeviceProgram, program: Program, judge: Judge) -> str:
    """What the emulation reports, or how results differ; "" if nothing is wrong."""
    fault, outputs = emulated(device, program, judge.inputs)
    return fault or next((f"results differ: {f}" for f in map(judge.compared, outputs) if f), "")


KERNELS = (*SMALL, *sorted(HOPPER), *sorted(HOPPER))
"""What kernels are of; those with more ways to wait are twice as likely."""


def kernel_mutant(rng: random.Random, number: int, names: tuple[str, ...] = KERNELS) -> Mutant:
    """A mutant of a kernel, emulated."""
    while True:
        name = rng.choice(names)
        right = _kernels(name, rng.randrange(3))
        found = kernel_mutants(right.device)
        if not found:
            continue
        operator = rng.choice(sorted(found))
        mutant = rng.choice(found[operator])()
        if mutant == right.device:
            continue
        fault = _kernel_fault(mutant, right.program, right.judge)
        before, after = format_device(right.device).splitlines(), format_device(mutant).splitlines()
        text = "\n".join(
            [f"{operator}, {name}", fault, *unified_diff(before, after, "right", "mutant", "", "", 1000, "")]
        )
        return Mutant(number, operator, name, "found" if fault else "silent", text)


# --- many of them -------------------------------------------------------------------------------------------------------

MAKERS: Mapping[Kind, Callable[[random.Random, int], Mutant]] = {"programs": program_mutant, "kernels": kernel_mutant}


def run(kind: Kind, seed: int, numbers: range) -> list[Mutant]:
    """The mutants of these numbers."""
    out: list[Mutant] = []
    for n in numbers:
        faulthandler.dump_traceback_later(ENDLESS, exit=True)
        out.append(MAKERS[kind](random.Random(f"{seed}/{n}"), n))
    faulthandler.cancel_dump_traceback_later()
    return out


def report(mutants: list[Mutant]) -> str:
    """How many there are of each outcome, operator by operator."""
    counts = Counter((m.operator, m.outcome) for m in mutants)
    every = [o for o in get_args(Outcome) if any(m.outcome == o for m in mutants)]
    lines = [f"{'':<36}" + "".join(f"{o:>18}" for o in every)]
    for operator in (*sorted({m.operator for m in mutants}), "all"):
        numbers = [counts[operator, o] if operator != "all" else sum(m.outcome == o for m in mutants) for o in every]
        lines.append(f"{operator:<36}" + "".join(f"{n or '':>18}" for n in numbers))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="the number of the first mutant")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kind", choices=get_args(Kind), default="programs", help="of what the mutants are")
    arguments = parser.parse_args()
    seed, end = arguments.seed, arguments.start + arguments.count
    total: list[Mutant] = []
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn")) as pool:
        batches = [range(at, min(at + BATCH, end)) for at in range(arguments.start, end, BATCH)]
        for done in as_completed([pool.submit(run, arguments.kind, seed, numbers) for numbers in batches]):
            total += (new := done.result())
            if len(total) % 100 == 0:
                print(f"{len(total)} mutants", flush=True)
            for m in new:
                if m.outcome not in ("equivalent", "refuted", "found"):
                    OUT.mkdir(parents=True, exist_ok=True)
                    file = OUT / f"{seed}-{arguments.kind}-{m.number}.txt"
                    file.write_text(m.text, encoding="utf-8")
                    print(f"{file}: {m.outcome}: {m.operator}, {m.source}", flush=True)
    print(report(total))
    sys.exit(1 if any(m.outcome in WRONG for m in total) else 0)


if __name__ == "__main__":
    main()
