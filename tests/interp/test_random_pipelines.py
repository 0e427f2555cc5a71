"""Random pipelines under the library's rules: each draw is right and proved. `make pipelines` draws any number of them."""

from __future__ import annotations

import os

import pytest

from campaigns.judge import proof
from campaigns.pipelines import Tally, draw, judges, pipelines, read, task, told
from tensorc_dsl.tuning.search.expansion import stream
from tests.interp.hard_pipelines import HARD


@pytest.mark.corpus("random pipelines")
@pytest.mark.parametrize("seed", range(2))
def test_every_draw_is_right_and_proved(seed: int) -> None:
    found = pipelines(range(seed, seed + 1), 2)
    assert (found.draws, found.unproved, found.wrong) == (2, 0, 0)


@pytest.mark.corpus("random pipelines")
@pytest.mark.parametrize("seed", [5, 7])
def test_a_kernel_for_all_sizes_is_right_and_proved(seed: int) -> None:
    """The validator proves these. It leaves some others undecided, which ran right. The code of these two is
    short: that of the first pipelines takes ten times as long. `make pipelines OPEN=1` has those."""
    found = pipelines(range(seed, seed + 1), 1, is_open=True)
    assert (found.draws, found.unproved, found.wrong) == (1, 0, 0)


@pytest.mark.corpus("random pipelines")
@pytest.mark.parametrize("name", HARD)
def test_what_is_read_in_many_pieces_is_proved(name: str) -> None:
    """Two draws are proved; the kernel of one is built and run, too."""
    t = task(HARD[name])
    found, fault = draw(t, 0, judges(t), name)
    assert (found.unproved, found.wrong, fault) == (0, 0, "")
    assert proof(t.program, t.space.sample(stream(1, t.name, "test")).program) == ""


def test_a_process_that_ends_is_wrong_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def one(seed: int, draws: int, _: bool) -> Tally:
        if seed == 12:
            os._exit(1)
        return Tally(draws)

    monkeypatch.setattr("campaigns.pipelines.one", one)
    found = pipelines(range(12, 14), 3)
    assert (found.draws, found.unproved, found.wrong) == (6, 0, 3)


def test_a_line_reads_back_as_the_hundred_that_it_tells_of() -> None:
    found = pipelines(range(12, 14), 1)
    line = told(range(12, 14), found)
    assert read(iter([line, "pipeline 12, draw 0: wrong", f"{line} and more"])) == {range(12, 14): found}
