"""The comparison on spaces that others have timed, on small tables that are made up here."""

from __future__ import annotations

import gzip
import json
import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from bench.search import spaces
from tensorc_dsl.tuning.search.assignments import Assignments


def rows() -> list[tuple[int, int, str, float | None]]:
    """Some combinations are absent, some fail."""
    return [
        (x, y, kind, None if y == 4 and kind == "b" else 1.0 + abs(x - 32) / 8 + abs(y - 2) + (kind == "b"))
        for x, y, kind in product((8, 16, 32, 64), (1, 2, 4), ("a", "b"))
        if x * y < 256
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [f"{x},{y},{kind},{'' if t is None else t}" for x, y, kind, t in rows()]
    with gzip.open(tmp_path / "made_up.csv.gz", "wt") as file:
        file.write("\n".join(["x,y,kind,time_ms", *lines, "1,2"]) + "\n")
    # Another order of columns, another delimiter, bools, a constant, a value that is not there, few rows.
    (tmp_path / "few.csv").write_text("﻿time;flag;same;size\n2.5;True;7;1.5\n;False;7;\n1.5;False;7;2\nnan;True;7;2\n")
    (tmp_path / "failed.csv").write_text("x,time_ms\n1,\n2,failed\n")
    (tmp_path / "broken.csv.gz").write_bytes(b"no gzip")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "notes.txt").write_text("no table")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> dict[str, object]:
    monkeypatch.setattr("sys.argv", ["spaces", *words, "--jobs", "1", "--json"])
    spaces.main()
    return json.loads(capsys.readouterr().out)


def test_tables_are_read(folder: Path) -> None:
    there = spaces.tables(folder)
    assert list(there) == ["few", "made_up"]
    few, made_up = there.values()
    assert [few.assignments.decisions(n) for n in range(4)] == [
        {"flag": True, "same": 7, "size": 1.5},
        {"flag": False, "same": 7},
        {"flag": False, "same": 7, "size": 2.0},
        {"flag": True, "same": 7, "size": 2.0},
    ]
    assert few.times == (2.5, None, 1.5, None)
    assert len(made_up.times) == len(rows())
    assert made_up.best == 1.0


def test_the_figures_of_strategies_are_printed(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run(capsys, monkeypatch, str(folder), "--seeds", "2", "--strategies", "bayes,random")
    # All rows of both tables are tried within the first 25 trials.
    done = {"25": 1.0, "50": 1.0, "100": 1.0, "200": 1.0}
    assert found["strategies"].keys() == {"bayes", "random"}  # pyright: ignore[reportAttributeAccessIssue]
    for figures in found["strategies"].values():  # pyright: ignore[reportAttributeAccessIssue]
        assert figures["share"] == done
        assert all(score <= 1 for score in figures["score"].values())
        assert 1 <= figures["t90"] <= figures["t95"] <= 22


def test_a_folder_without_tables_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["spaces", str(tmp_path)])
    with pytest.raises(SystemExit, match="no table"):
        spaces.main()


def test_an_unknown_strategy_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["spaces", str(folder), "--strategies", "bayes,best"])
    with pytest.raises(SystemExit, match="'best'"):
        spaces.main()


def test_random_search_has_a_score_of_0_and_the_optimum_1(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,time\n1,1\n2,2\n3,6\n4,\n")
    table = spaces.tables(tmp_path)["t"]
    # Of 1 draw: (1 + 2 + 6 + 6) / 4; of 2: of six pairs three have the 1, two more the 2, one neither.
    by_chance = np.array([15 / 4, (3 * 1 + 2 * 2 + 6) / 6, 5 / 4, 1.0, 1.0])
    np.testing.assert_allclose(table.by_chance(5), by_chance)
    np.testing.assert_allclose(spaces.scores(1 / by_chance[None, :3], table), 0.0, atol=1e-12)
    np.testing.assert_allclose(spaces.scores(np.ones((2, 3)), table), 1.0)


def test_equal_rows_count_once_by_the_fastest(tmp_path: Path) -> None:
    path = tmp_path / "twice.csv"
    path.write_text("x,time\n1,3\n1,2\n1,\n2,9\n")
    table = spaces.read(path)
    assert table is not None
    assert isinstance(table.assignments, Assignments)
    assert table.times == (2.0, 9.0)


@pytest.mark.skipif("KERNEL_SPACES" not in os.environ, reason="KERNEL_SPACES names a folder of tables")
def test_bayes_finds_far_more_than_random_on_kernels_of_others() -> None:
    folder = Path(os.environ["KERNEL_SPACES"])
    for name in list(spaces.tables(folder))[:2]:
        shares = [spaces.curve(spaces.Job(s, name, 0, 50, folder))[-1] for s in ("bayes", "random")]
        assert shares[0] > shares[1]
