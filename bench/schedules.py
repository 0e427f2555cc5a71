"""Random schedules of small programs of odd sizes: `python -m bench.schedules --seed 1 --count 20000 --jobs 2`.

The programs are those of computes, or with `--nests` loops that are written out (`random_nests`).

A schedule is a sequence of steps of random primitives with random arguments of the right kinds. Either a step is refused,
with a refusal that its primitive declares, or the program after it is right: well formed, the same when printed and parsed,
equal to the reference in every order of the loops that run at once, and proved so by `validate.validate`. Every NATIVE-th
is compiled and run. Failures are reduced to few steps and written to build/schedules/.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

from bench.judge import Judge, Verdict
from bench.random_nests import random_nests
from bench.random_programs import computes, random_program
from bench.random_steps import NothingToName, Step, random_step, random_way
from tensorc_dsl.diagnostic import render
from tensorc_dsl.interp.record import Recorder
from tensorc_dsl.interp.values import OpenFactor, ProgramRef, Value
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.schedule.render import refusal_diagnostic
from tensorc_dsl.schedule.stale import STALE
from tensorc_dsl.source import Span

OUT = Path("build/schedules")
BATCH = 20
"""Schedules that a process is given at a time."""
NATIVE = 10
NESTS_NATIVE = 3
PROVED = 8
"""Of loops that are written out, every so manyth: a proof takes far longer than a step."""
STEPS = (1, 9)
"""Accepted steps of a schedule."""
ENDLESS = 300
"""Seconds after which a schedule stops the run: nothing about it takes so long."""
TRIES = 5
"""Steps that are tried for each that is wanted."""


class Internal(Exception):
    """A step raised what is no refusal of its primitive; the text is what it raised."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A schedule that went wrong: `kind` as in `Verdict`, or "step" where a step raised what it must not.

    `task` is empty for a program that no compute gives.
    """

    number: int
    task: str
    original: Program
    steps: tuple[Step, ...]
    kind: str
    fault: str


@dataclass(slots=True)
class Tally:
    """What became of schedules and of steps."""

    schedules: int = 0
    natives: int = 0
    accepted: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    unproved: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Why a proof was not found, and the number of the schedule."""
    failures: list[Failure] = field(default_factory=list[Failure])

    def add(self, other: Tally) -> None:
        self.schedules += other.schedules
        self.natives += other.natives
        self.accepted += other.accepted
        self.refused += other.refused
        self.unproved += other.unproved
        self.failures += other.failures


def applied(program: Program, step: Step) -> Program:
    """The program after the step. Raises ScheduleRefusal, which is one that the primitive declares, or Internal."""
    try:
        return step.apply(program).program
    except ScheduleRefusal as e:
        if e.refusal not in (*PRIMITIVES[step.name].refusals, *STALE):
            raise Internal(f"{step.name} does not declare {e.refusal.code}") from e
        try:
            render(refusal_diagnostic(e))
        except Exception:
            raise Internal(traceback.format_exc()) from e
        raise
    except Exception:
        raise Internal(traceback.format_exc()) from None


def schedule(
    seed: int, number: int, tally: Tally, compute: str | None = None, native: bool = False, nests: bool = False
) -> None:
    """Make the schedule of that number, judge it, and count what happened."""
    rng = random.Random(f"{seed}/{number}")
    original, task = (random_nests(rng), "") if nests else random_program(rng, compute)
    program, steps = original, list[Step]()
    wanted = rng.randint(*STEPS)
    tally.schedules += 1
    for _ in range(wanted * TRIES):
        way = random_way(rng)
        for name in way:
            try:
                step = random_step(program, rng, name, towards=way[-1])
            except NothingToName:
                continue
            try:
                program = applied(program, step)
            except ScheduleRefusal as e:
                tally.refused[step.name, e.refusal.code] += 1
                continue
            except Internal as e:
                tally.failures.append(Failure(number, task, original, (*steps, step), "step", str(e)))
                return
            tally.accepted[step.name] += 1
            steps.append(step)
        if len(steps) >= wanted:
            break
    verdict = Judge(original, number, stages=not nests).judge(program, native, proved=not nests or number % PROVED == 0)
    tally.natives += native
    if verdict.unproved:
        tally.unproved.append((verdict.unproved, number))
    if verdict.kind:
        tally.failures.append(Failure(number, task, original, tuple(steps), verdict.kind, verdict.fault))


# --- what went wrong --------------------------------------------------------------------------------------------------


def ending(failure: Failure, steps: Sequence[Step]) -> Verdict:
    """How the steps end; those that are refused are left out."""
    program = failure.original
    for step in steps:
        try:
            program = applied(program, step)
        except ScheduleRefusal:
            continue
        except Internal as e:
            return Verdict("step", str(e))
    return Judge(failure.original, failure.number, stages=bool(failure.task)).judge(program, native=True)


def smallest(failure: Failure) -> Failure:
    """The failure without the steps that it does not need."""
    steps, fault, at = list(failure.steps), failure.fault, 0
    while at < len(steps):
        fewer = steps[:at] + steps[at + 1 :]
        verdict = ending(failure, fewer)
        if verdict.kind == failure.kind:
            steps, fault = fewer, verdict.fault
        else:
            at += 1
    return Failure(failure.number, failure.task, failure.original, tuple(steps), failure.kind, fault)


def written(failure: Failure) -> str:
    """The schedule as a file: the computes and the task, or the program; the steps; what is wrong, and the program after
    them, as comments.
    """
    program, recorder = failure.original, Recorder()
    recorder.start(program)
    span = Span(computes().source, 0, 0)
    for step in failure.steps:
        text = str(step)
        try:
            text = recorder.call_code(
                step.name, tuple(map(_value, step.args)), {k: _value(v) for k, v in step.kwargs}, program, span
            )
            rewrite = step.apply(program)
        except ScheduleRefusal:
            continue
        except Exception:
            recorder.lines.append(text)
            break
        recorder.step(text, rewrite.results, span)
        program = rewrite.program
    compute = failure.original.name
    given = f"{computes().source.text}\n{failure.task}" if failure.task else format_program(failure.original)
    body = "".join(f"    {line}\n" for line in recorder.lines)
    notes = "\n".join([f"{failure.kind}: {failure.fault}", "", format_program(program)])
    comment = "".join(f"// {line}".rstrip() + "\n" for line in notes.splitlines())
    return f"{given}\n\nschedule it for {compute} {{\n{body}}}\n\n{comment}"


def _value(argument: Any, inside: bool = False) -> Value:
    """The argument as the language has it."""
    if argument is None:
        return OpenFactor() if inside else ProgramRef()
    if isinstance(argument, tuple):
        items = cast("tuple[Any, ...]", argument)
        return tuple(_value(a, inside=True) for a in items)
    return argument


# --- many of them -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Batch:
    seed: int
    numbers: range
    nests: bool = False


def run(batch: Batch) -> Tally:
    """The schedules of these numbers; failures as short as can be."""
    tally = Tally()
    for n in batch.numbers:
        faulthandler.dump_traceback_later(ENDLESS, exit=True)
        schedule(batch.seed, n, tally, native=n % (NESTS_NATIVE if batch.nests else NATIVE) == 0, nests=batch.nests)
    faulthandler.cancel_dump_traceback_later()
    tally.failures = [smallest(f) for f in tally.failures]
    return tally


def _batches(seed: int, start: int, count: int, nests: bool) -> Iterator[Batch]:
    for at in range(start, start + count, BATCH):
        yield Batch(seed, range(at, min(at + BATCH, start + count)), nests)


def _tell(tally: Tally, seed: int) -> None:
    """Write each failure to its file, and say so."""
    for failure in tally.failures:
        OUT.mkdir(parents=True, exist_ok=True)
        file = OUT / f"{seed}-{failure.number}.tsched"
        file.write_text(written(failure), encoding="utf-8")
        lines = failure.fault.strip().splitlines()
        print(f"{file}: {failure.kind}: {lines[-1 if failure.kind == 'step' else 0]}", flush=True)


def report(tally: Tally) -> str:
    """What was tried, accepted and refused, primitive by primitive."""
    lines = [f"{'primitive':<24}{'tried':>8}{'accepted':>10}  refused"]
    for name in sorted(PRIMITIVES):
        codes = {code: n for (p, code), n in tally.refused.items() if p == name}
        accepted, refused = tally.accepted[name], sum(codes.values())
        why = ", ".join(f"{code} {n}" for code, n in sorted(codes.items(), key=lambda c: -c[1]))
        never = "  never accepted" if not accepted else ""
        lines.append(f"{name:<24}{accepted + refused:>8}{accepted:>10}  {why}{never}")
    for why, n in Counter(why for why, _ in tally.unproved).most_common():
        numbers = [str(number) for reason, number in tally.unproved if reason == why]
        lines.append(f"{n} × {why}; schedule {', '.join(numbers[:8])}")
    lines.append(
        f"{tally.schedules} schedules, {sum(tally.accepted.values())} accepted steps, {tally.natives} run as machine code,"
        f" {len(tally.unproved)} unproved, {len(tally.failures)} wrong"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="the number of the first schedule")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--nests", action="store_true", help="programs of loops that are written out, not those of computes"
    )
    arguments = parser.parse_args()
    total, began = Tally(), time.monotonic()
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn")) as pool:
        batches = {
            pool.submit(run, b): b for b in _batches(arguments.seed, arguments.start, arguments.count, arguments.nests)
        }
        for done in as_completed(batches):
            try:
                _tell(tally := done.result(), arguments.seed)
            except BrokenProcessPool:
                lost = [str(b.numbers) for f, b in batches.items() if f.done() and f.exception()]
                sys.exit(f"a schedule ends never, or its process: in {', '.join(lost[: 2 * arguments.jobs + 1])}")
            total.add(tally)
            if total.schedules % 1000 < BATCH:
                print(f"{total.schedules} schedules, {time.monotonic() - began:.0f} s", flush=True)
    print(report(total))
    sys.exit(1 if total.failures else 0)


if __name__ == "__main__":
    main()
