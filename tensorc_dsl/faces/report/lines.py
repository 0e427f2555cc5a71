"""The events of a search as JSON, one object a line, for programs that watch it. `docs/tune.md` describes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

import msgspec

from tensorc_dsl.tuning.measure.outcome import Outcome
from tensorc_dsl.tuning.records.trial import encode_decisions
from tensorc_dsl.tuning.search.events import (
    Comparing,
    Corrected,
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
    Verifying,
    Waiting,
)
from tensorc_dsl.tuning.search.regret import CHANCE, Regret

Facts = dict[str, Any]


def printing(task: str, show: Callable[[Facts], None]) -> Callable[[Event], None]:
    """A listener that shows each event of the search for a task."""
    return lambda event: show(facts(task, event))


def facts(task: str, event: Event) -> Facts:
    """The fields of a line: the name of the event, the task, and the facts of the event."""
    name, more = _facts(event)
    return {"event": name, "task": task, **more}


def _facts(event: Event) -> tuple[str, Facts]:
    match event:
        case Started(strategy=strategy, trials=trials, seed=seed, budget=budget, until=until):
            ends = {"trials": trials, "budget": budget, "until": until}
            return "started", {"strategy": strategy, "seed": seed} | ends
        case Resumed(trials=trials):
            return "resumed", {"trials": trials}
        case Informed(trials=trials, tasks=tasks):
            return "informed", {"trials": trials, "tasks": tasks}
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
            return "measured", _trial(event)
        case Corrected():
            return "corrected", _trial(event)
        case Regret(share=share, intervals=intervals, held=held):
            return "regret", {"share": share, "probability": CHANCE, "intervals": intervals, "held": held}
        case Waiting(unkept=unkept):
            return "waiting", {"records": len(unkept.trials), "why": [d.message for d in unkept.why]}
        case Drifted(factor=factor):
            return "drifted", {"factor": factor}
        case Settled(factor=factor, waited=waited, trials=trials):
            return "settled", {"factor": factor, "waited": waited, "trials": trials}
        case Slowed(factor=factor):
            return "slowed", {"factor": factor}
        case Sharing(given_up=given_up):
            return "sharing", {"given_up": given_up}
        case Exhausted(programs=programs, whole=whole):
            return "exhausted", {"programs": programs, "whole": whole}
        case Comparing(finalists=count):
            return "comparing", {"finalists": count}
        case Verifying(finalist=number, finalists=count):
            return "verifying", {"finalist": number + 1, "finalists": count}
        case Finished(trials=trials, best_seconds=best, elapsed_seconds=elapsed, interrupted=interrupted):
            ended = {"best_seconds": best, "elapsed_seconds": elapsed, "interrupted": interrupted}
            return "finished", {"trials": trials} | ended
        case _:
            assert_never(event)


def _trial(event: Measured | Corrected) -> Facts:
    """The fields of a trial, counted from 1, with its outcome."""
    o: Outcome = event.outcome
    return {
        "trial": event.trial + 1,
        "status": str(o.status),
        "seconds": o.seconds,
        "samples": len(o.times),
        "censored": o.censored,
        "scale": o.scale,
        "message": o.message,
        "build_seconds": o.build_seconds,
        "run_seconds": o.run_seconds,
        "best_seconds": event.best_seconds,
        "decisions": msgspec.json.decode(encode_decisions(event.trace.decisions)),
    }
