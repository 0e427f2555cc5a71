"""The result of a search as the cell of a notebook shows it."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl.faces.api import Task, TuneResult
from tensorc_dsl.faces.api.searching import SearchResult
from tensorc_dsl.tuning.measure.outcome import Outcome, Status
from tests.page.known import seconds, task_in
from tests.page.test_page import Parts


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return task_in(tmp_path_factory.mktemp("task"))


def result(task: Task, count: int) -> SearchResult:
    """So many trials with made-up times."""
    rng = np.random.default_rng(0)
    traces = [task.model.sample(rng) for _ in range(count)]
    times = [seconds(t.decisions) for t in traces]
    outcomes = [Outcome(Status.CRASH) if s is None else Outcome(Status.OK, s, (s,)) for s in times]
    valid = [(s, n) for n, s in enumerate(times) if s is not None]
    found = TuneResult(
        best=traces[min(valid)[1]] if valid else None, best_seconds=min(valid)[0] if valid else None, verdict=None, wrong=(),
        finalists=(), traces=tuple(traces), outcomes=tuple(outcomes), statuses=dict(Counter(str(o.status) for o in outcomes)),
        elapsed_seconds=3.0, trials=count, seed=4, refusals=0, refused={}, interrupted=False,
    )  # fmt: skip
    return SearchResult.of(found, task.model, task.name)


def test_it_shows_the_best_time_the_curve_and_the_draws_that_matter(task: Task) -> None:
    found = result(task, 40)
    parts = Parts(found._repr_html_())
    assert parts.open == []
    tags = Counter(tag for tag, _ in parts.elements)
    assert tags["circle"] == found.statuses["ok"] and tags["path"] == 1
    assert tags["script"] == 0 and tags["style"] == 0 and tags["img"] == 0
    shown = " ".join(parts.shown.split())
    assert shown.startswith("best 1.6") and "40 trials in 3.00 s" in shown and "seed 4" in shown
    names = [data for tag, data in parts.texts if tag == "td"][::3]
    assert names[0] == "columns" and set(names) <= {"columns", "rows", "wide", "unrolled"}
    assert "explains" in shown
    drawing = next(a for tag, a in parts.elements if tag == "svg")
    assert drawing["role"] == "img" and (drawing["aria-label"] or "").startswith("The best time so far")


def test_few_trials_have_no_draws_that_matter(task: Task) -> None:
    parts = Parts(result(task, 4)._repr_html_())
    assert parts.open == [] and not any(tag == "table" for tag, _ in parts.elements)


def test_no_trials_and_no_valid_ones_are_told(task: Task) -> None:
    shown = Parts(result(task, 0)._repr_html_()).shown
    assert "no valid schedule" in shown and "no trials" in shown


def test_one_valid_trial_is_a_curve(task: Task) -> None:
    count = next(n for n in range(1, 9) if result(task, n).statuses.get("ok") == 1)
    assert "NaN" not in (html := result(task, count)._repr_html_()) and "inf" not in html


def test_a_result_of_a_search_is_one(task: Task, tmp_path: Path) -> None:
    found = task.search(trials=2, records=tmp_path / "r.sqlite")
    assert isinstance(found, TuneResult) and "<svg" in found._repr_html_()
    assert pickle.loads(pickle.dumps(found)).statuses == copy.copy(found).statuses == found.statuses
