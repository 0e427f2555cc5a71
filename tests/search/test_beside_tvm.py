"""The comparison with TVM's search: what is read of its records, and the table."""

from __future__ import annotations

import json
from pathlib import Path

from bench.against.metaschedule import times_of
from bench.against.turns import Reading
from bench.search.beside_tvm import Case, Searched, best_after, searched, told


def test_the_times_of_trials_are_read_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "records.json"
    rows = [[0, [["trace"], seconds, {"kind": "llvm"}, []]] for seconds in ([2e-3, 4e-3], [1e10], [1e-3], [])]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert times_of(path) == (3e-3, None, 1e-3, None)


def test_the_best_after_some_trials_is_that_of_the_valid_ones() -> None:
    tried = [None, 3.0, 1.0, None, 2.0]
    assert [best_after(tried, n) for n in (1, 2, 3, 5)] == [None, 3.0, 1.0, 1.0]
    assert best_after(tried, 8) is None  # there were fewer


def test_the_table_has_a_row_for_each_search_and_reasons() -> None:
    ours = searched(Reading(2e-3, 1e-3, 3e-3, "8 trials", 7.4, (None, 2e-3, *[5e-3] * 6)))
    rows = told([Case("gemm_512", 3, 8, {"ours": ours, "tvm": searched("crashed: -11")})]).splitlines()
    assert rows[0] == "| task | seed | search | 8 | seconds of the search | best, by turns (µs) |"
    assert rows[2] == "| gemm_512 | 3 | ours | 2000 | 7 | 2000 (1000 to 3000) |"
    assert rows[3] == "| gemm_512 | 3 | tvm |  |  | crashed: -11 |"
    assert len({row.count("|") for row in rows}) == 1
    assert Searched() == searched("")
