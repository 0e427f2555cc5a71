"""One schedule, built, checked and timed, with what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorc_dsl.report.terminal import show

if TYPE_CHECKING:
    from tensorc_dsl.api import Task
    from tensorc_dsl.trace.trace import Trace


def measure_and_show(task: Task, trace: Trace) -> None:
    """Prints the time beside the peak; raises TschedError (E0908) where the schedule does not work."""
    from tensorc_dsl.api.tasks import failed
    from tensorc_dsl.machine.yardsticks import peak_of
    from tensorc_dsl.report.table import comparison

    outcome = task.measure(trace)
    if outcome.seconds is None:
        raise failed(f"makes no valid kernel ({outcome.status.replace('_', ' ')})", outcome.message)
    show(comparison(task.flops, outcome.seconds, None, peak_of(task.program, task.target, task.threads)))
    show(f"\nthe result is right: largest error {outcome.max_error or 0.0:.2g} of what is allowed")
