"""The end of a search: compares the best few candidates side by side, and proves the winner."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorc_dsl.proof.equivalence.validate import Invalid, Report
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.search.drift import Watch
from tensorc_dsl.tuning.search.events import Comparing, Verifying
from tensorc_dsl.tuning.search.input import RunnerLike
from tensorc_dsl.tuning.search.log import Log

FINALISTS = 5
"""How many of the best are measured again, side by side, at the end."""

OTHERS = 3
"""How many of the best by their times as they were measured, and by the least that they may have, are finalists, too."""

LOOKS, DISTURBED = 3, 1.2
"""A comparison in which every finalist took this many times longer than in its trial was disturbed by other work on the
machine; so was one in which a finalist lost to one that it was faster than, by this much. It is repeated, up to this many in
all."""

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


def final(run: Log, runner: RunnerLike, watch: Watch | None = None) -> tuple[list[tuple[float, int]], float]:
    """Times of a second measurement of the best few, the fastest first, and how many times slower than undisturbed the
    machine was, by which they are divided. If all of these fail, the next few are measured.

    The first few by their times as they were measured are among them, and the first few that may be faster than recorded: a
    factor that was wrong excludes no program.
    """
    numbers = [n for _, n in run.ranked()]
    others = [n for _, n in (*run.ranked_as_measured()[:OTHERS], *run.ranked_by_hope()[:OTHERS])]
    while numbers:
        few = [*dict.fromkeys([*numbers[:FINALISTS], *others])]
        numbers, others = [n for n in numbers if n not in few], []
        run.emit(Comparing(len(few)))
        again, factor = _compare(run, few, runner, watch)
        run.finalists += few
        run.record([(n, run.traces[n], o) for n, o in zip(few, again, strict=True)], "final")
        times = [(o.seconds, n) for n, o in zip(few, again, strict=True) if o.seconds is not None]
        if times:
            limit = min(times)[0] * (1 + TIE)
            even = [(len(run.traces[n].text), run.traces[n].text, n, s) for s, n in times if s <= limit]
            _, _, winner, seconds = min(even)
            return [(seconds, winner), *sorted(x for x in times if x[1] != winner)], factor
    return [], 1.0


def _compare(run: Log, numbers: list[int], runner: RunnerLike, watch: Watch | None) -> tuple[list[Outcome], float]:
    """An outcome per trial, from measuring them side by side: a failure if there was any, else the fastest look; and the
    factor by which these are divided. The yardstick is measured among them."""
    programs = [run.traces[n].program for n in numbers]
    yardstick = None if watch is None else watch.yardstick
    if yardstick is not None and all(p is not yardstick for p in programs):
        programs.append(yardstick)
    held: list[Outcome] = []
    for _ in range(LOOKS):
        seen = runner.compare(programs)
        held = [_better(a, b) for a, b in zip(held, seen, strict=True)] if held else seen
        if not _disturbed([run.outcomes[n] for n in numbers], held, 1.0 if watch is None else watch.scale):
            break
    if watch is None or yardstick is None:
        return held[: len(numbers)], 1.0
    # The machine may change in the middle of a round: the factor is one that every finalist was slower by.
    slower = (now / trial for now, trial in _pairs([run.outcomes[n] for n in numbers], held))
    beside = watch.beside(next(o for p, o in zip(programs, held, strict=True) if p is yardstick))
    factor = max(1.0, min(beside, *slower))
    return [watch.corrected(o, factor) for o in held[: len(numbers)]], factor


def _disturbed(trials: Sequence[Outcome], held: Sequence[Outcome], scale: float) -> bool:
    """Whether every finalist took far longer than in its trial, on a machine so many times slower; or one that was faster
    than the winner in its trial is by far not so now."""
    pairs = _pairs(trials, held)
    if not pairs:
        return False
    won, was = min(pairs)
    return min(now / trial for now, trial in pairs) > DISTURBED * scale or any(
        trial < was and now * was > DISTURBED * won * trial for now, trial in pairs
    )


def _pairs(trials: Sequence[Outcome], held: Sequence[Outcome]) -> list[tuple[float, float]]:
    """The times of the valid finalists now, and in their trials."""
    return [(o.seconds, t.seconds) for o, t in zip(held, trials, strict=False) if o.seconds and t.seconds]


def _better(a: Outcome, b: Outcome) -> Outcome:
    """The failure, if there is one, else the faster outcome."""
    if a.seconds is None or b.seconds is None:
        return b if a.seconds is not None else a
    return min(a, b, key=lambda o: o.seconds or 0.0)
