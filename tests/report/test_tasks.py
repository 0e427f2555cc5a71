"""Several searches on a terminal and in a log: a line for each, and one for all."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tensorc_dsl.faces.report.live import Line
from tensorc_dsl.faces.report.progress import Standing, Together, show_progress, shown
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.machine.roof import Roof
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tensorc_dsl.tuning.search.events import Event, Informed, Measured, Preparing, Proposed, Started
from tensorc_dsl.tuning.search.strategy import Regret
from tests import programs

TRACE = Trace("s", "matmul", (), (), programs.matmul(2, 2, 2))
ROOF = Roof(400_000, 1, True, "f32 FMA peak", 1e9, 0.0)
NAMES = ["c2d_14", "attention_of_twelve_heads", "norm"]


def good(trial: int, seconds: float) -> Measured:
    return Measured(trial, TRACE, Outcome(Status.OK, seconds), seconds)


EVENTS: list[tuple[int, Event]] = [
    *((n, Started(name, "bayes", 64, 0)) for n, name in enumerate(NAMES)),
    (0, Informed(300, 7)), (1, Informed(280, 6)),
    (0, Proposed((TRACE,) * 2, 0.0)), (0, Preparing()), (0, good(0, 0.002)),
    (0, Measured(1, TRACE, Outcome(Status.TIMEOUT), 0.002)), (0, Regret(0.374, 8, 8)),
    (1, Proposed((TRACE,), 0.0)), (1, Preparing()), (1, good(0, 0.00123)),
]  # fmt: skip


def played(out: io.StringIO) -> Standing:
    standing = Standing(lambda: 0.0)
    with show_progress(standing, out) as follower:
        together = Together(standing, follower, [ROOF] * 3, NAMES, 192)
        for number, event in EVENTS:
            together.listener(number)(event)
    return standing


def screen(standing: Standing, width: int, height: int = 30) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, height=height, force_terminal=True, color_system=None).print(Line(standing))
    return out.getvalue().splitlines()


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (30, [
            "  c2d_14         2.00 ms",
            "› attention_of…  1.23 ms",
            "  norm",
            "[3/192] 1 timeout, now 1.23 ms",
        ]),
        (60, [
            "  c2d_14                  2 trials   2.00 ms  20 % of roof",
            "› attention_of_twelve_h…  1 trial    1.23 ms  33 % of roof",
            "  norm                    no trials",
            "[3/192] 1 timeout, now 1.23 ms",
        ]),
        (80, [
            "  c2d_14                  2 trials   2.00 ms  20 % of roof  regret 37 %",
            "› attention_of_twelve_h…  1 trial    1.23 ms  33 % of roof",
            "  norm                    no trials",
            "[3/192] 1 timeout, now 1.23 ms",
        ]),
        (140, [
            "  c2d_14                  2 trials   2.00 ms  20 % of roof  1 timeout  regret 37 %",
            "› attention_of_twelve_h…  1 trial    1.23 ms  33 % of roof",
            "  norm                    no trials",
            f"{24 * ' '} [3/192] 1 timeout, now 1.23 ms",
        ]),
    ],
)  # fmt: skip
def test_each_task_has_a_line_of_what_fits(width: int, lines: list[str]) -> None:
    assert [line.rstrip() for line in screen(played(io.StringIO()), width)] == lines


def test_no_line_is_wider_or_lower_than_the_terminal() -> None:
    rows = played(io.StringIO()).tasks * 20
    for width in range(12, 150):
        for current in (None, 0, 31, 59):
            for height in (2, 3, 7, 100):
                lines = shown(rows, current, width, height)
                assert len(lines) == min(height, len(rows)) and all(len(line) <= width for line in lines)
                assert current is None or any(line.startswith("›") for line in lines)
    assert shown(rows, 31, 80, 7)[-1] == "  and 54 more tasks"


def test_a_log_names_the_task_whose_turn_it_is() -> None:
    out = io.StringIO()
    played(out)
    assert out.getvalue() == (
        "learns from 300 trials of 7 other tasks on this machine\n"
        "c2d_14:\n"
        "computing the reference that results are compared with\n"
        "attention_of_twelve_heads:\n"
        "computing the reference that results are compared with\n"
    )


def test_the_line_of_a_task_returns_with_its_turn() -> None:
    standing = played(io.StringIO())
    assert (standing.best, standing.regret) == (0.00123, None)
    standing.turn(0)
    assert (standing.best, standing.regret) == (0.002, 0.374)
    assert "best 2.00 ms," in standing.text() and "regret 37 %" in standing.text()
    assert "best" not in standing.fitting(80)
