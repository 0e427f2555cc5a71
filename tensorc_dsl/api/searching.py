"""A search over a model, with what it runs on: child processes, the database, whoever watches."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.machine.roof import GLANCE, MEASURING, roof_of
from tensorc_dsl.measure.local import LocalRunner
from tensorc_dsl.records.queue import Queue
from tensorc_dsl.report.following import following, watched
from tensorc_dsl.report.progress import Standing
from tensorc_dsl.search.events import Event, Listener, Prepared, Preparing
from tensorc_dsl.search.options import SearchOptions
from tensorc_dsl.search.tune import TuneResult, tune
from tensorc_dsl.trace.model import Model
from tensorc_dsl.trace.trace import Trace
from tensorc_dsl.validate.validate import UNPROVED, Report, Unproved, validate


def search(
    model: Model,
    program: Program,
    target: Target,
    options: SearchOptions,
    *,
    records: Path | Queue | None = None,
    on_event: Listener | None = None,
) -> TuneResult:
    """Search the model for the fastest way to run `program` (unscheduled) on this machine, with the threads of the target."""

    def tell(event: Event) -> None:
        if on_event is not None:
            on_event(event)

    def judge(trace: Trace) -> Report:
        # A proof that breaks off, which is a bug, proves nothing, but takes no result away.
        try:
            return validate(program, trace.program)
        except Exception as e:
            reason = f"the proof broke off, which is a bug: {type(e).__name__}: {e}"
            return Unproved(UNPROVED(None, reason=reason))

    with ExitStack() as stack:
        queue = records if isinstance(records, Queue) else stack.enter_context(Queue.at(records))
        runner = stack.enter_context(
            LocalRunner(program, target, threads=target.cores, on_preparing=lambda begins: tell(
                Preparing() if begins else Prepared()
            ))
        )  # fmt: skip
        return tune(
            model,
            program,
            target,
            options,
            runner=runner,
            threads=target.cores,
            records=queue,
            on_event=tell,
            verify=judge,
        )


@contextmanager
def watching(program: Program, target: Target, progress: bool | None) -> Generator[Listener | None]:
    """What shows a search on standard error as it goes; None where nobody looks, unless `progress` says so."""
    if progress is False or (progress is None and not watched(sys.stderr)):
        yield None
        return
    standing = Standing()
    with following(standing, sys.stderr) as follower:
        follower.begin(MEASURING)
        standing.roof = roof_of(program, target, target.cores, GLANCE)
        yield follower
