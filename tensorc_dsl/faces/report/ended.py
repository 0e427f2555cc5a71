"""The end of a search as a table, as JSON and as the first lines of its file; and its events as JSON, an object a line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, assert_never

import msgspec

from tensorc_dsl.base import units
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.visible import visible_line
from tensorc_dsl.faces.report import results
from tensorc_dsl.faces.report.progress import exhaustion_message, percent
from tensorc_dsl.faces.report.results import comparison, tally
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.ir.target import Target
from tensorc_dsl.reference.work import describe_all
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.machine.baseline import Yardsticks
from tensorc_dsl.tuning.machine.roof import unreached
from tensorc_dsl.tuning.measure.emulation import Emulated
from tensorc_dsl.tuning.measure.outcome import Outcome, Quantity, Status, cache_of
from tensorc_dsl.tuning.records.emulated_counts import Counted
from tensorc_dsl.tuning.records.trial import encode_decisions, program_key
from tensorc_dsl.tuning.search.events import (
    Comparing,
    Corrected,
    Crew,
    Diverged,
    Drifted,
    Event,
    Exhausted,
    Finished,
    Informed,
    Learnt,
    Measured,
    Prepared,
    Preparing,
    Proposed,
    Resumed,
    Settled,
    Sharing,
    Slowed,
    Started,
    Unshipped,
    Verifying,
    Waiting,
)
from tensorc_dsl.tuning.search.strategy import CHANCE, Regret
from tensorc_dsl.tuning.search.tune import TuneResult

PLAUSIBLE = 1.05
"""The largest credible share of the peak: clocks vary by a few percent, and no kernel is faster than the peak."""

NOTABLE = 0.01
"""If the final time differs from the fastest trial's by more than this share, the difference is explained."""


def regret_sentence(regret: Regret, enough: bool, left: tuple[float, str] | None) -> str:
    """The model's estimate for schedules that were not tried, and its calibration.

    `left` is how much faster the roof allows a schedule to be, and the roof's name; an estimate beyond that is not shown.
    """
    predicted = units.counted(regret.intervals, "trial")
    calibrated = f"{regret.held} of the {predicted} that it predicted were in its intervals of 95 %"
    if left is not None and regret.share > left[0]:
        return (
            f"no schedule can be more than {percent(left[0])} faster, by the {left[1]}; the model's estimate says no more; "
            f"{calibrated} (`tensorc-dsl explain regret`)"
        )
    return (
        f"{'ended by ' if enough else ''}the model's estimate, which is no bound: with probability {units.share(CHANCE)} no "
        f"schedule is more than {percent(regret.share)} faster; {calibrated} (`tensorc-dsl explain regret`)"
    )


def machines_of(result: TuneResult) -> dict[str, int]:
    """How many trials each worker's machine timed, by its name; none where this machine did."""
    return dict(sorted(Counter(o.machine for o in result.outcomes if o.machine).items()))


def refused_facts(result: TuneResult) -> list[dict[str, Any]]:
    """The rules of the space that were refused and left out in some schedules, as JSON."""
    return [
        {
            "rule": r.rule,
            "subject": r.subject,
            "code": r.refusal.refusal.code,
            "message": r.refusal.message,
            "count": n,
        }
        for r, n in result.refused.items()
    ]


def refused_lines(result: TuneResult) -> Iterator[str]:
    """The same as text, a line for each rule and reason."""
    for r, n in result.refused.items():
        count = units.counted(n, "schedule")
        yield f"rule `{r.rule}` was refused on `{r.subject}` and left out in {count}: {r.refusal}"


@frozen
class Ended:
    """A finished search over a task, with the roof and NumPy's time."""

    task: str
    target: Target
    threads: int
    strategy: str
    result: TuneResult
    yardsticks: Yardsticks
    timed: tuple[Sizes, ...]
    """The sizes of open dimensions over which times are means; a single empty one if nothing is open."""
    keeps: str = ""
    """What all schedules of the search keep, in words."""

    def _left(self) -> tuple[float, str] | None:
        """How much faster than the best the roof allows a schedule to be, and its name; None if that is unknown."""
        best, roof = self.result.best_seconds, self.yardsticks.roof
        share = None if best is None else roof.share(best)
        return (max(0.0, PLAUSIBLE / share - 1.0), roof.name) if share else None

    def facts(self, best_file: Path | None, prior_file: Path | None) -> dict[str, Any]:
        """The object that `--json` prints: times in seconds, rates in units of 1e9 operations or bytes per second."""
        best, roof = self.result.best_seconds, self.yardsticks.roof
        return {
            "task": self.task,
            "trials": self.result.trials,
            "statuses": self.result.statuses,
            "refused": refused_facts(self.result),
            "best_seconds": best,
            "gflops": None if best is None else roof.operations / best / 1e9,
            "peak": roof.title or None,
            "peak_gflops": None if roof.peak is None else roof.peak / 1e9,
            "gbytes_per_second": None if best is None else roof.bytes_ / best / 1e9,
            "bandwidth_gbytes_per_second": roof.bytes_ / roof.moving / 1e9 if roof.moving else None,
            "bound_by": "memory" if roof.by_memory else "computing" if roof.peak is not None else None,
            "of_bound": None if best is None else roof.share(best),
            "numpy_seconds": self.yardsticks.numpy_seconds,
            "numpy_disturbed": self.yardsticks.numpy_disturbed,
            "scale": self.result.scale,
            "memory_scale": self.result.memory,
            "elapsed_seconds": self.result.elapsed_seconds,
            "seed": self.result.seed,
            "strategy": self.strategy,
            "threads": self.threads,
            "target": self.target.key,
            "timed_at": list(self.timed),
            "cache": cache_of(self.target),
            "interrupted": self.result.interrupted,
            "exhausted": self.result.exhausted is not None,
            "regret": None if self.result.regret is None else self.result.regret.share,
            "enough": self.result.enough,
            "machines": machines_of(self.result),
            "unrecorded": 0 if self.result.unkept is None else len(self.result.unkept.trials),
            "verdict": None if self.result.verdict is None else results.facts(self.result.verdict)[0],
            "keeps": self.keeps or None,
            "alike": self.result.alike,
            "band": self.result.band,
            "within": self.result.within,
            "best_file": None if best_file is None else str(best_file),
            "prior_file": None if prior_file is None else str(prior_file),
        }

    def _state(self) -> str:
        return f"{self.target.workers(self.threads)}, {cache_of(self.target)} caches"

    def table(self, best_file: Path | None) -> str:
        """The same as text."""
        r, y = self.result, self.yardsticks
        kinds = f": {tally(r.statuses)}" if r.trials else ""
        out = [
            f"{self.task} on {self.target.cpu}, {self._state()}{self._sizes()}\n",
            comparison(y.roof, r.best_seconds, y.numpy_seconds, y.numpy_disturbed),
            f"\n{units.counted(r.trials, 'trial')} in {units.seconds(r.elapsed_seconds)}{kinds}",
            *self._notes(),
        ]
        if some := machines_of(r):
            each = ", ".join(f"{count} on {visible_line(name)}" for name, count in some.items())
            out.append(f"trials by machine: {each}")
        out += refused_lines(r)
        if r.verdict is not None:
            out.append(f"verified: {results.verdict_line(r.verdict)}")
        if best_file is not None:
            out.append(f"best schedule: {visible_line(str(best_file))}")
        return "\n".join(out)

    def _notes(self) -> Iterator[str]:
        """Explanations of unusual figures."""
        r = self.result
        if not self.yardsticks.roof.is_measured:
            yield "no roof is measured on a board: how far the best is from what its processor can do is not known"
        if r.exhausted is not None:
            yield f"{exhaustion_message(r.exhausted)}: there was nothing more to try"
        if r.regret is not None:
            yield regret_sentence(r.regret, r.enough, self._left())
        seen = min((o.seconds for o in r.outcomes if o.seconds is not None), default=None)
        if r.best_seconds is None or seen is None:
            return
        if abs(r.best_seconds - seen) > NOTABLE * seen:
            again = f"the best {len(r.finalists)} were" if len(r.finalists) > 1 else "it was"
            yield (
                f"the fastest trial took {units.seconds(seen)}; {again} measured again, by turns and for longer, and the "
                f"winner takes {units.seconds(r.best_seconds)} there"
            )
        if r.alike:
            others = f"{r.alike} other{'s are' if r.alike > 1 else ' is'}"
            yield f"of {len(r.finalists)} that were compared, {others} as fast within {100 * r.band:.1f} %: the simplest wins"
        if r.scale != 1.0:
            yield (
                f"the machine was {r.scale:.2f} times slower there than in the search, and the times of that comparison are "
                "divided by this: other work disturbed it"
            )
        if r.memory != 1.0:
            yield (
                f"the memory of the machine was {r.memory:.2f} times slower there than in the search, through all of it: "
                "another schedule may be the best; tune again when the machine is quiet"
            )
        if self.yardsticks.numpy_disturbed:
            yield (
                "other work disturbed NumPy while it was timed: its calls did not agree, or the machine was slower than "
                "before; on a quiet machine it may be far faster"
            )
        if r.best is not None and (why := unreached(r.best.program, self.target, self.timed[-1])):
            yield why
        share = self.yardsticks.roof.share(r.best_seconds)
        if share is not None and share > PLAUSIBLE:
            yield (
                "this is more than the machine was seen to do: it was busy then, and NumPy's time may be too long, or the "
                "kernel leaves out operations without effect, such as products with a border of zeros"
            )

    def header(self) -> str:
        """Some comment lines for the best schedule's file, which say where it comes from. There must be a best schedule."""
        r = self.result
        assert r.best_seconds is not None
        trials = units.counted(r.trials, "trial")
        return (
            f"// {self.task}: {units.seconds(r.best_seconds)}, {self.yardsticks.roof.described(r.best_seconds)}\n"
            f"// on {self.target.cpu}, {units.counted(self.threads, 'thread')}{self._sizes()}; "
            f"{trials}, {self.strategy}, seed {r.seed}\n{kept_line(self.keeps)}"
        )

    def _sizes(self) -> str:
        if not any(self.timed):
            return ""
        best = self.result.best
        between = ""
        if best is not None and best.program.cases:
            width = self.result.within
            sure = "" if width is None else f", times within {math.ceil(100 * width)} % (95 %)"
            between = f"; between these, which case a size has is predicted{sure}"
        return f", timed at {describe_all(self.timed)}{between}"


SHOWN = 5
"""How many of the best schedules are listed, where they are emulated."""


@frozen
class EndedCounting:
    """A finished search over a task by emulated counts. Its figures are cycles of a model, which no time is compared with.

    `found` has what was counted, by the keys of programs; so many trials were `recorded` before, in the file `counts`.
    """

    task: str
    target: Target
    strategy: str
    result: TuneResult
    found: Mapping[str, Counted]
    recorded: int
    counts: Path
    keeps: str = ""

    @property
    def wrong(self) -> list[int]:
        """The numbers of the trials whose kernels are wrong."""
        return [n for n, o in enumerate(self.result.outcomes) if o.status is Status.WRONG_RESULT]

    def _reasons(self) -> Counter[str]:
        """Why trials have no kernel."""
        return Counter(o.message for o in self.result.outcomes if o.status is Status.REFUSED)

    def _valid(self) -> list[dict[str, int]]:
        """The valid trials, the fastest of the model first, with what their kernels move: on the busiest multiprocessor, and
        in all."""
        out: list[dict[str, int]] = []
        outcomes = self.result.outcomes
        for cycles, n in sorted((o.seconds, n) for n, o in enumerate(outcomes) if o.seconds is not None):
            found = self._emulated(self.result.traces[n])
            sectors, passes = (sum(c.moves(shared) for c in found.counts) for shared in (False, True))
            moves = found.busiest(self.target.cores)
            out.append({"trial": n + 1, "cycles": round(cycles), "moves": moves, "sectors": sectors, "passes": passes})
        return out

    def _number(self, trace: Trace) -> int:
        """The number of the trial of a schedule."""
        return next(n for n, t in enumerate(self.result.traces, 1) if t is trace)

    def _emulated(self, trace: Trace) -> Emulated:
        found = self.found[program_key(trace.program)].found
        assert found is not None
        return found

    def facts(self, best_file: Path | None) -> dict[str, Any]:
        """The object that `--json` prints: trials are counted from 1."""
        r = self.result
        return {
            "task": self.task,
            "trials": r.trials,
            "statuses": r.statuses,
            "refused": refused_facts(r),
            "recorded": self.recorded,
            "reasons": dict(self._reasons()),
            "wrong": [n + 1 for n in self.wrong],
            "best_cycles": r.best_seconds,
            "best_trial": None if r.best is None else self._number(r.best),
            "valid": self._valid(),
            "elapsed_seconds": r.elapsed_seconds,
            "seed": r.seed,
            "strategy": self.strategy,
            "target": self.target.key,
            "interrupted": r.interrupted,
            "exhausted": r.exhausted is not None,
            "regret": None if r.regret is None else r.regret.share,
            "enough": r.enough,
            "verdict": None if r.verdict is None else results.facts(r.verdict)[0],
            "best_file": None if best_file is None else str(best_file),
            "counts": str(self.counts),
        }

    def table(self, best_file: Path | None) -> str:
        """The same as text, with the best few of the trials."""
        r = self.result
        recorded = f", {self.recorded} of them recorded before" if self.recorded else ""
        kinds = f": {tally(r.statuses)}" if r.trials else ""
        how = "by the cycles of a model, not timed; moves are those of the busiest multiprocessor"
        out = [f"{self.task} on {self.target.cpu}: {how}\n"]
        if valid := self._valid():
            rows = [("trial", "cycles", "moves", "sectors of global memory", "passes over shared memory")]
            rows += [tuple(map(str, one.values())) for one in valid[:SHOWN]]
            out.append(results.columns(rows) + "\n")
        if r.best is not None:
            out.append(f"trial {self._number(r.best)} is the best one:")
            out.append(results.traffic(self._emulated(r.best), r.best.program) + "\n")
        out.append(f"{units.counted(r.trials, 'trial')} in {units.seconds(r.elapsed_seconds)}{kinds}{recorded}")
        out += (f"{units.counted(n, 'trial')} without a kernel: {why}" for why, n in self._reasons().items())
        if r.exhausted is not None:
            out.append(f"{exhaustion_message(r.exhausted)}: there was nothing more to try")
        if r.regret is not None:
            out.append(regret_sentence(r.regret, r.enough, None))
        out += refused_lines(r)
        if r.verdict is not None:
            out.append(f"verified: {results.verdict_line(r.verdict)}")
        if best_file is not None:
            out.append(f"best schedule: {visible_line(str(best_file))}")
        out.append(f"the counts are in {visible_line(str(self.counts))}, apart from all times")
        return "\n".join(out)

    def header(self) -> str:
        """Comment lines for the best schedule's file. There must be a best schedule."""
        r = self.result
        assert r.best_seconds is not None
        return (
            f"// {self.task}: {Quantity.CYCLES.shown(r.best_seconds)}, counted in an emulation, never timed; "
            f"{units.counted(r.trials, 'trial')}, {self.strategy}, seed {r.seed}\n{kept_line(self.keeps)}"
        )


def kept_line(keeps: str) -> str:
    """A comment line for the file of a schedule that keeps something; empty if it keeps nothing."""
    return f"// keeps {keeps}: proved, and compared in each trial\n" if keeps else ""


Facts = dict[str, Any]


def printing(task: str, show: Callable[[Facts], None], quantity: Quantity) -> Callable[[Event], None]:
    """A listener that shows each event of the search for a task."""
    return lambda event: show(facts(task, event, quantity))


def facts(task: str, event: Event, quantity: Quantity = Quantity.SECONDS) -> Facts:
    """The fields of a line: the name of the event, the task, and the facts of the event, with figures of the quantity."""
    name, more = _facts(event, quantity)
    return {"event": name, "task": task, **more}


def _facts(event: Event, quantity: Quantity) -> tuple[str, Facts]:
    match event:
        case Started(strategy=strategy, trials=trials, seed=seed, budget=budget, until=until):
            ends = {"trials": trials, "budget": budget, "until": until}
            return "started", {"strategy": strategy, "seed": seed} | ends
        case Resumed(trials=trials):
            return "resumed", {"trials": trials}
        case Informed(trials=trials, tasks=tasks, elsewhere=elsewhere, machines=machines):
            return "informed", {"trials": trials, "tasks": tasks, "elsewhere": elsewhere, "machines": machines}
        case Unshipped(why=why):
            return "unshipped", {"code": why.code, "why": why.message}
        case Diverged(trials=trials):
            return "diverged", {"trials": trials}
        case Proposed(traces=traces, ask_seconds=seconds, predictions=predictions):
            said = [None if p is None else {"mean": p.mean, "deviation": p.deviation} for p in predictions]
            return "proposed", {"schedules": len(traces), "ask_seconds": seconds, "predictions": said}
        case Learnt(seconds=seconds):
            return "learnt", {"seconds": seconds}
        case Preparing():
            return "preparing", {}
        case Prepared(compared=share):
            return "prepared", {"compared": share}
        case Measured():
            return "measured", _trial(event, quantity)
        case Corrected():
            return "corrected", _trial(event, quantity)
        case Regret(share=share, intervals=intervals, held=held):
            return "regret", {"share": share, "probability": CHANCE, "intervals": intervals, "held": held}
        case Waiting(unkept=unkept):
            return "waiting", {"records": len(unkept.trials), "why": [d.message for d in unkept.why]}
        case Drifted(factor=factor):
            return "drifted", {"factor": factor}
        case Settled(factor=factor, waited=waited, trials=trials):
            return "settled", {"factor": factor, "waited": waited, "trials": trials}
        case Slowed(factor=factor, memory=memory):
            return "slowed", {"factor": factor, "memory": memory}
        case Sharing(given_up=given_up):
            return "sharing", {"given_up": given_up}
        case Crew(news=news, machines=count):
            return "crew", {"machine": news.machine, "change": news.change, "why": news.why, "machines": count}
        case Exhausted(programs=programs, whole=whole):
            return "exhausted", {"programs": programs, "whole": whole}
        case Comparing(finalists=count):
            return "comparing", {"finalists": count}
        case Verifying(finalist=number, finalists=count):
            return "verifying", {"finalist": number + 1, "finalists": count}
        case Finished(trials=trials, best_seconds=best, elapsed_seconds=elapsed, interrupted=interrupted):
            ended = {f"best_{quantity}": best, "elapsed_seconds": elapsed, "interrupted": interrupted}
            return "finished", {"trials": trials} | ended
        case _:
            assert_never(event)


def _trial(event: Measured | Corrected, quantity: Quantity) -> Facts:
    """The fields of a trial, counted from 1, with its outcome."""
    o: Outcome = event.outcome
    return {
        "trial": event.trial + 1,
        "status": str(o.status),
        str(quantity): o.seconds,
        "samples": len(o.times),
        "censored": o.censored,
        "scale": o.scale,
        "message": o.message,
        "machine": o.machine,
        "build_seconds": o.build_seconds,
        "run_seconds": o.run_seconds,
        f"best_{quantity}": event.best_seconds,
        "decisions": msgspec.json.decode(encode_decisions(event.trace.decisions)),
    }
