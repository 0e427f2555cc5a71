"""Summarises the end of a search, as JSON and as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorc_dsl.base import units
from tensorc_dsl.base.visible import visible_line
from tensorc_dsl.faces.report import results
from tensorc_dsl.faces.report.progress import exhaustion, percent
from tensorc_dsl.faces.report.results import comparison, tally
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.ir.target import Target
from tensorc_dsl.reference.work import describe_all
from tensorc_dsl.tuning.machine.yardsticks import Yardsticks
from tensorc_dsl.tuning.measure.timing import cache_of
from tensorc_dsl.tuning.search.regret import CHANCE, Regret
from tensorc_dsl.tuning.search.tune import TuneResult

PLAUSIBLE = 1.05
"""The largest credible share of the peak: clocks vary by a few percent, and no kernel is faster than the peak."""

NOTABLE = 0.01
"""If the final time differs from the fastest trial's by more than this share, the difference is explained."""


def regretted(regret: Regret, enough: bool, left: tuple[float, str] | None) -> str:
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


@dataclass(frozen=True, slots=True)
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
            "refused": [
                {
                    "rule": r.rule,
                    "subject": r.subject,
                    "code": r.refusal.refusal.code,
                    "message": r.refusal.message,
                    "count": n,
                }
                for r, n in self.result.refused.items()
            ],
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
            "unrecorded": 0 if self.result.unkept is None else len(self.result.unkept.trials),
            "verdict": None if self.result.verdict is None else results.facts(self.result.verdict)[0],
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
        for refused, n in r.refused.items():
            count = units.counted(n, "schedule")
            out.append(
                f"rule `{refused.rule}` was refused on `{refused.subject}` and left out in {count}: {refused.refusal}"
            )
        if r.verdict is not None:
            out.append(f"verified: {results.line(r.verdict)}")
        if best_file is not None:
            out.append(f"best schedule: {visible_line(str(best_file))}")
        return "\n".join(out)

    def _notes(self) -> Iterator[str]:
        """Explanations of unusual figures."""
        r = self.result
        if r.exhausted is not None:
            yield f"{exhaustion(r.exhausted)}: there was nothing more to try"
        if r.regret is not None:
            yield regretted(r.regret, r.enough, self._left())
        seen = min((o.seconds for o in r.outcomes if o.seconds is not None), default=None)
        if r.best_seconds is None or seen is None:
            return
        if abs(r.best_seconds - seen) > NOTABLE * seen:
            again = f"the best {len(r.finalists)} were" if len(r.finalists) > 1 else "it was"
            yield (
                f"the fastest trial took {units.seconds(seen)}; {again} measured again, by turns and for longer, and the "
                f"winner takes {units.seconds(r.best_seconds)} there"
            )
        if r.scale != 1.0:
            yield (
                f"the machine was {r.scale:.2f} times slower there than in the search, and the times of that comparison are "
                "divided by this: other work disturbed it"
            )
        if self.yardsticks.numpy_disturbed:
            yield (
                "other work disturbed NumPy while it was timed: its calls did not agree, or the machine was slower than "
                "before; on a quiet machine it may be far faster"
            )
        share = self.yardsticks.roof.share(r.best_seconds)
        if share is not None and share > PLAUSIBLE:
            yield (
                "this is more than the machine was seen to do: it was busy then, and NumPy's time may be too long, or the "
                "kernel leaves out operations without effect, such as products with a border of zeros"
            )

    def header(self) -> str:
        """Two comment lines for the best schedule's file, which say where it comes from. There must be a best schedule."""
        r = self.result
        assert r.best_seconds is not None
        trials = units.counted(r.trials, "trial")
        return (
            f"// {self.task}: {units.seconds(r.best_seconds)}, {self.yardsticks.roof.described(r.best_seconds)}\n"
            f"// on {self.target.cpu}, {units.counted(self.threads, 'thread')}{self._sizes()}; "
            f"{trials}, {self.strategy}, seed {r.seed}\n"
        )

    def _sizes(self) -> str:
        return f", timed at {describe_all(self.timed)}" if any(self.timed) else ""
