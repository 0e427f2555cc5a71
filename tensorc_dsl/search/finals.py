"""The end of a search: compares the best few candidates side by side, and proves the winner."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorc_dsl.measure.outcome import Outcome, Status
from tensorc_dsl.search.events import Comparing, Verifying
from tensorc_dsl.search.log import Log
from tensorc_dsl.search.runner import RunnerLike
from tensorc_dsl.trace.trace import Trace
from tensorc_dsl.validate.validate import Invalid, Report

FINALISTS = 5
"""How many of the best are measured again, side by side, at the end."""

LOOKS, DISTURBED = 3, 1.2
"""A comparison in which every finalist took this many times longer than in its trial was disturbed by other work on the
machine; it is repeated, up to this many in all."""

TIE = 0.01
"""Finalists within this share of the fastest are as fast; the one with the shorter program wins."""

Best = tuple[Trace, float] | None


def judged(
    run: Log, final: Sequence[tuple[float, int]], verify: Callable[[Trace], Report] | None
) -> tuple[Best, Report | None, tuple[tuple[Trace, Invalid], ...], bool]:
    """The first trial that is not refuted, finalists first, with its verdict; the refuted ones; and whether Ctrl-C ended the
    proofs early.

    All finalists are proved, since their times are in the database too.
    """
    best: Best = None
    verdict: Report | None = None
    wrong: list[tuple[Trace, Invalid]] = []
    looked = 0
    others = [(s, n) for s, n in run.ranked() if n not in run.finalists]
    try:
        for seconds, n in (*final, *others):
            trace = run.traces[n]
            if best is not None and (n not in run.finalists or verify is None):
                break
            if verify is not None and n in run.finalists:
                run.emit(Verifying(looked, len(run.finalists)))
                looked += 1
            report = None if verify is None else verify(trace)
            if isinstance(report, Invalid):
                wrong.append((trace, report))
                message = f"{report.diagnostic.code}: {report.diagnostic.message}"
                run.record([(n, trace, Outcome(Status.WRONG_RESULT, message=message))], "final")
            elif best is None:
                best, verdict = (trace, seconds), report
    except KeyboardInterrupt:
        left = [(run.traces[n], s) for s, n in (*final, *others) if all(run.traces[n] is not t for t, _ in wrong)]
        return best or (left[0] if left else None), verdict, tuple(wrong), True
    return best, verdict, tuple(wrong), False


def final(run: Log, runner: RunnerLike) -> list[tuple[float, int]]:
    """Times of a second measurement of the best few, the fastest first. If all of these fail, the next few are measured."""
    numbers = [n for _, n in run.ranked()]
    while numbers:
        few, numbers = numbers[:FINALISTS], numbers[FINALISTS:]
        run.emit(Comparing(len(few)))
        again = _compare(run, few, runner)
        run.finalists += few
        run.record([(n, run.traces[n], o) for n, o in zip(few, again, strict=True)], "final")
        times = [(o.seconds, n) for n, o in zip(few, again, strict=True) if o.seconds is not None]
        if times:
            limit = min(times)[0] * (1 + TIE)
            even = [(len(run.traces[n].text), run.traces[n].text, n, s) for s, n in times if s <= limit]
            _, _, winner, seconds = min(even)
            return [(seconds, winner), *sorted(x for x in times if x[1] != winner)]
    return []


def _compare(run: Log, numbers: list[int], runner: RunnerLike) -> list[Outcome]:
    """An outcome per trial, from measuring them side by side: a failure if there was any, else the fastest look."""
    held: list[Outcome] = []
    for _ in range(LOOKS):
        seen = runner.compare([run.traces[n].program for n in numbers])
        held = [_better(a, b) for a, b in zip(held, seen, strict=True)] if held else seen
        ratios = [o.seconds / (run.outcomes[n].seconds or 1.0) for n, o in zip(numbers, held, strict=True) if o.seconds]
        if min(ratios, default=0.0) <= DISTURBED:
            break
    return held


def _better(a: Outcome, b: Outcome) -> Outcome:
    """The failure, if there is one, else the faster outcome."""
    if a.seconds is None or b.seconds is None:
        return b if a.seconds is not None else a
    return min(a, b, key=lambda o: o.seconds or 0.0)
