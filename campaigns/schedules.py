"""Random schedules of small programs of odd sizes: `python -m campaigns.schedules --seed 1 --count 20000 --jobs 2`.

The programs are those of computes, or with `--kind nests` loops that are written out (`random_nests`), or with `--kind
pages` what the schedules on pages of tests make of theirs (`scheduled_pages`): steps on what steps that rarely apply have
made. `--aim NAME` takes sections with a step of that primitive.

A schedule is a sequence of steps of random primitives with random arguments of the right kinds. Either a step is refused,
with a refusal that its primitive declares, or the program after it is right: well formed, the same when printed and parsed,
equal to the reference in every order of the loops that run at once, and proved so by `proof.equivalence.validate`. Some are
compiled and run. Failures are reduced to few steps and written to build/schedules/.
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
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, cast, get_args

from campaigns.judge import Judge, Verdict
from campaigns.random_nests import random_nests
from campaigns.random_programs import computes, random_program
from campaigns.random_steps import NothingToName, Step, random_step, random_way
from campaigns.scheduled_pages import random_start, scheduled
from tensorc_dsl.base.diagnostic import render
from tensorc_dsl.base.source import Span
from tensorc_dsl.interp.evaluate import OpenFactor, ProgramRef, Value
from tensorc_dsl.interp.record import Recorder
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.sizes import bind
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.stale import STALE
from tensorc_dsl.schedule.step import ScheduleRefusal, refusal_diagnostic

OUT = Path("build/schedules")
BATCH = 20
"""Schedules that a process is given at a time."""
NATIVE: dict[Kind, int] = {"computes": 10, "nests": 3, "pages": 3}
"""Every so manyth is compiled and run."""
PROVED: dict[Kind, int] = {"computes": 1, "nests": 8, "pages": 4}
"""Every so manyth is proved: of loops that are written out, a proof takes far longer than a step."""
STEPS = (1, 9)
"""Accepted steps of a schedule."""
ENDLESS = 300
"""Seconds after which a schedule stops the run: nothing about it takes so long."""
TRIES = 5
"""Steps that are tried for each that is wanted."""


class Internal(Exception):
    """A step raised what is no refusal of its primitive; the text is what it raised."""


Kind = Literal["computes", "nests", "pages"]


@dataclass(frozen=True, slots=True)
class Batch:
    """The schedules of these numbers; of pages, those with a step of one of the primitives `aims`, if there are any."""

    seed: int
    numbers: range
    kind: Kind = "computes"
    aims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class First:
    """What steps are drawn for: the program `start`, which computes what `original` does.

    `task` is its line if a compute of `schedules.tsched` gives it; `page` names the section of a page that made `start`.
    """

    original: Program
    start: Program
    stages: bool
    task: str = ""
    page: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A schedule that went wrong: `kind` as in `Verdict`, or "step" where a step raised what it must not."""

    number: int
    first: First
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


def drawn(rng: random.Random, batch: Batch) -> First:
    """A program of the kind that the batch is of."""
    match batch.kind:
        case "computes":
            program, task = random_program(rng)
            return First(program, program, True, task)
        case "nests":
            program = random_nests(rng)
            return First(program, program, False)
        case "pages":
            page = random_start(rng, batch.aims)
            original, start = scheduled(page.text, page.steps)
            sizes = {d.name: rng.randint(d.low, min(d.high or d.low + 12, d.low + 12)) for d in original.dims}
            return First(bind(original, sizes), bind(start, sizes), page.is_compute, page=page.name)


def schedule(batch: Batch, number: int, tally: Tally) -> None:
    """Make the schedule of that number, judge it, and count what happened."""
    rng = random.Random(f"{batch.seed}/{number}")
    first = drawn(rng, batch)
    program, steps = first.start, list[Step]()
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
                tally.failures.append(Failure(number, first, (*steps, step), "step", str(e)))
                return
            tally.accepted[step.name] += 1
            steps.append(step)
        if len(steps) >= wanted:
            break
    native = number % NATIVE[batch.kind] == 0
    verdict = Judge(first.original, number, first.stages).judge(
        program, native, proved=number % PROVED[batch.kind] == 0
    )
    tally.natives += native
    if verdict.unproved:
        tally.unproved.append((verdict.unproved, number))
    if verdict.kind:
        tally.failures.append(Failure(number, first, tuple(steps), verdict.kind, verdict.fault))


# --- what went wrong --------------------------------------------------------------------------------------------------


def ending(failure: Failure, steps: Sequence[Step]) -> Verdict:
    """How the steps end; those that are refused are left out."""
    program = failure.first.start
    for step in steps:
        try:
            program = applied(program, step)
        except ScheduleRefusal:
            continue
        except Internal as e:
            return Verdict("step", str(e))
    return Judge(failure.first.original, failure.number, failure.first.stages).judge(program, native=True)


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
    return replace(failure, steps=tuple(steps), fault=fault)


def written(failure: Failure) -> str:
    """The schedule as a file: the computes and the task, or the program; the steps; what is wrong, and the program after
    them, as comments.
    """
    first = failure.first
    program, recorder = first.start, Recorder()
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
    given = f"{computes().source.text}\n{first.task}" if first.task else format_program(first.start)
    body = "".join(f"    {line}\n" for line in recorder.lines)
    notes = "\n".join(
        [*([first.page] if first.page else []), f"{failure.kind}: {failure.fault}", "", format_program(program)]
    )
    comment = "".join(f"// {line}".rstrip() + "\n" for line in notes.splitlines())
    return f"{given}\n\nschedule it for {first.start.name} {{\n{body}}}\n\n{comment}"


def _value(argument: Any, inside: bool = False) -> Value:
    """The argument as the language has it."""
    if argument is None:
        return OpenFactor() if inside else ProgramRef()
    if isinstance(argument, tuple):
        items = cast("tuple[Any, ...]", argument)
        return tuple(_value(a, inside=True) for a in items)
    return argument


# --- many of them -----------------------------------------------------------------------------------------------------


def run(batch: Batch) -> Tally:
    """The schedules of these numbers; failures as short as can be."""
    tally = Tally()
    for n in batch.numbers:
        faulthandler.dump_traceback_later(ENDLESS, exit=True)
        schedule(batch, n, tally)
    faulthandler.cancel_dump_traceback_later()
    tally.failures = [smallest(f) for f in tally.failures]
    return tally


def _batches(whole: Batch) -> Iterator[Batch]:
    for at in range(whole.numbers.start, whole.numbers.stop, BATCH):
        yield replace(whole, numbers=range(at, min(at + BATCH, whole.numbers.stop)))


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
    parser.add_argument("--kind", choices=get_args(Kind), default="computes", help="where the programs are from")
    parser.add_argument("--aim", nargs="*", default=[], choices=sorted(PRIMITIVES), help="primitives that pages have")
    arguments = parser.parse_args()
    numbers = range(arguments.start, arguments.start + arguments.count)
    whole = Batch(arguments.seed, numbers, arguments.kind, tuple(arguments.aim))
    total, began = Tally(), time.monotonic()
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn")) as pool:
        batches = {pool.submit(run, b): b for b in _batches(whole)}
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
