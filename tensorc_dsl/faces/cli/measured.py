"""Builds, checks and times one schedule, the best known one or a given one, and prints the result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import click

from tensorc_dsl.base.diagnostic import problem
from tensorc_dsl.faces.report.terminal import say, show, show_diagnostics, show_object

if TYPE_CHECKING:
    from tensorc_dsl.faces.api import LoadedModel, Task
    from tensorc_dsl.faces.api.kernel import Known
    from tensorc_dsl.ir.target import Target
    from tensorc_dsl.schedule.trace.trace import Trace


# Builds, checks and times one schedule, and prints the result.


@problem(
    "W0901",
    "{threads} on {cores}: they take turns, so times are longer than they need be and differ from run to run",
    help="give `--threads {count}`, or let this process use more cores (affinity, quota of its control group)",
)
def TOO_MANY_THREADS(*, threads: str, cores: str, count: int) -> None: ...


def warn_of_threads(target: Target) -> None:
    """Warn on standard error if kernels of CPUs have more threads than there are cores for this process."""
    from tensorc_dsl.base.units import counted
    from tensorc_dsl.processes.machine import usable_cores

    cores, threads = usable_cores(), target.cores
    if threads > cores and not target.device:
        many, few = counted(threads, "thread"), counted(cores, "core")
        show_diagnostics(TOO_MANY_THREADS(None, threads=many, cores=few, count=cores))


def measured(task: Task, trace: Trace) -> tuple[float, float, float]:
    """The seconds of a call, the largest error as a share of what is allowed, and the share of the results that is compared.

    Raises TschedError (E0908) if the schedule does not work.
    """
    from tensorc_dsl.faces.api.kernel import failed

    outcome = task.measure(trace)
    warn_of_threads(task.target)
    if outcome.seconds is None:
        raise failed(f"makes no valid kernel ({outcome.status.replace('_', ' ')})", outcome.message, task.definition)
    return outcome.seconds, outcome.max_error or 0.0, outcome.compared


def emulate_and_show(task: Task, trace: Trace) -> None:
    """Print what an emulation found. Raises TschedError (E0908) if something is wrong, and as `Task.emulate`."""
    from tensorc_dsl.faces.api.kernel import failed
    from tensorc_dsl.faces.report.results import traffic

    found = task.emulate(trace)
    if found.fault:
        raise failed("makes a kernel that is wrong", found.fault, task.definition)
    show("emulated on the CPU, in three orders of threads: no races, nothing out of bounds\n")
    show(traffic(found, trace.program))
    _show_error(task, found.max_error, found.compared)


def measure_and_show(task: Task, trace: Trace) -> None:
    """Print the time beside the roof. Raises TschedError (E0908) if the schedule does not work."""
    from tensorc_dsl.faces.report.results import comparison
    from tensorc_dsl.reference.work import describe_all, sizing
    from tensorc_dsl.tuning.machine.roof import roof_of

    seconds, error, compared = measured(task, trace)
    show(comparison(roof_of(task.program, task.target, task.threads), seconds, None))
    if any(task.timed_at):
        sizes = sizing(task.program)
        show(f"\ntimed at {describe_all(sizes.timed)}; checked at {describe_all(sizes.checked)}")
    _show_error(task, error, compared)


MOST_SECONDS = 2.0
"""How long a model is timed; a call that takes longer is timed once."""


def run_and_show(model: LoadedModel, inputs: Mapping[str, Any], as_json: bool = False) -> dict[str, Any]:
    """Run a model, and print the types of its results and the time of a call. Returns the results. Raises UsageError."""
    import time

    from tensorc_dsl.base import units

    try:
        results = model.outputs_of(**inputs)  # the first call also takes memory
    except ValueError as e:
        raise click.UsageError(str(e)) from e
    times: list[float] = []
    end = time.perf_counter() + MOST_SECONDS
    while not times or time.perf_counter() < end:
        begin = time.perf_counter()
        results = model.outputs_of(**inputs)
        times.append(time.perf_counter() - begin)
    seconds = sorted(times)[len(times) // 2]
    shapes = {n: f"{r.dtype.name}{list(r.shape)}" for n, r in results.items()}
    if as_json:
        show_object({"model": model.name, "seconds": seconds, "calls": len(times), "outputs": shapes})
        return results
    for name, shape in shapes.items():
        say(f"{name}: {shape}")
    say(f"{model.name}: {units.seconds(seconds)} a call, the median of {len(times)}")
    return results


def _show_error(task: Task, error: float, compared: float) -> None:
    """Print the largest error, and warn where little is compared."""
    from tensorc_dsl.ir.contraction import allowed_error
    from tensorc_dsl.tuning.measure.local import little_compared

    approx = allowed_error(task.program)
    near = f", functions of f32 within {approx:.2g} of their results" if approx else ""
    show(f"\nthe result is right: largest error {error:.2g} of what is allowed{near}")
    if (little := little_compared(compared)) is not None:
        show_diagnostics(little)


# The best known schedule of a task, of which standard error says where it is from.


def best_known(task: Task, file: str, records: str | None, *, or_draw: bool = True) -> Known:
    """The schedule of `Task.known`; one that is predicted is reported, and with `or_draw` one that is drawn, too."""
    from tensorc_dsl.faces.api import Forecast
    from tensorc_dsl.faces.api.kernel import Drawn, Given, Recorded, describe, untuned

    found = task.known(Path(records) if records else None, on_warning=show_diagnostics)
    match found.origin:
        case Recorded() | Given():
            pass
        case Forecast() as forecast:
            found_out = f"`tensorc-dsl tune {file} {task.name}` finds out"
            say(f"not tuned: schedule {describe(forecast)}; {found_out}", err=True)
        case Drawn() if not or_draw:
            pass
        case Drawn():
            warning = untuned(task, found.origin)
            assert warning is not None
            show_diagnostics(warning)
        case _:
            assert_never(found.origin)
    return found
