"""The best known schedule of a task, of which standard error says where it is from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from tensorc_dsl.report.terminal import say, show_diagnostics

if TYPE_CHECKING:
    from tensorc_dsl.api import Task
    from tensorc_dsl.api.known import Known


def best_known(task: Task, file: str, records: str | None, *, or_draw: bool = True) -> Known:
    """The schedule of `Task.known`; one that is predicted is reported, and with `or_draw` one that is drawn, too."""
    from tensorc_dsl.api.known import Drawn, Given, Recorded, describe, untuned
    from tensorc_dsl.tuning.search.zero_shot import Forecast

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
