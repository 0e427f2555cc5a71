"""Rows for programs and for people."""

from __future__ import annotations

import msgspec
import pytest

from bench.against.roof import Need
from bench.against.rows import Report, Row, row
from bench.against.table import document, searches, summary
from bench.against.turns import Outcome, Reading

OUTCOMES: dict[str, Outcome] = {
    "ours": Reading(2e-3, 1.9e-3, 2.1e-3, "64 trials"),
    "numpy": Reading(3e-3, 3e-3, 3e-3),
    "torch": Reading(2.5e-3, 2e-3, 4e-3),
    "jax": "not offered",
}

NEED = Need("f32", 2_000_000, 0.5e-3)
PEAKS = {"f32": 2e9}


def test_the_ratio_is_that_to_the_fastest_peer() -> None:
    found = row("gemm", "512", OUTCOMES, "ours", NEED, PEAKS)
    assert found.ours_seconds == 2e-3
    assert found.peers == {"numpy": 3e-3, "torch": 2.5e-3}
    assert found.ratio_to_best_peer == pytest.approx(1.25)
    assert found.fraction_of_roof == pytest.approx(0.5)
    assert found.why_not == {"jax": "not offered"}


def test_without_ours_or_without_peers_there_is_no_ratio() -> None:
    alone = row("gemm", "512", {"ours": OUTCOMES["ours"]}, "ours", NEED, PEAKS)
    assert alone.ratio_to_best_peer is None
    assert alone.fraction_of_roof == pytest.approx(0.5)
    failed = row("gemm", "512", {**OUTCOMES, "ours": "crashed"}, "ours", NEED, PEAKS)
    assert failed.ours_seconds is None
    assert failed.ratio_to_best_peer is None
    assert failed.fraction_of_roof is None
    assert failed.why_not == {"ours": "crashed", "jax": "not offered"}


def test_a_row_is_held_under_the_peak_that_is_known_in_the_end() -> None:
    early = row("gemm", "512", OUTCOMES, "ours", NEED, {"f32": 0.6e9})
    assert early.fraction_of_roof == pytest.approx(1.67, abs=0.01)
    assert early.under(PEAKS).fraction_of_roof == pytest.approx(0.5)
    # Above 4 GFLOP/s it is memory that holds it back, and another kind's peak is none of its.
    assert early.under({"f32": 8e9}).fraction_of_roof == pytest.approx(0.25)
    assert early.under({"f32": 2e9, "u8i8": 0.1e9}).fraction_of_roof == pytest.approx(0.5)
    failed = row("gemm", "512", {"ours": "crashed"}, "ours", NEED, {"f32": 0.6e9})
    assert failed.under(PEAKS).fraction_of_roof is None


def test_searches_are_compared_where_both_searched() -> None:
    def pair(ours: float | None, peer: float | None, times: float) -> Row:
        outcomes = {"ours": Reading(1e-3, 1e-3, 1e-3, "", ours), "tvm": Reading(times * 1e-3, 1e-3, 1e-3, "", peer)}
        return row("gemm", "1", outcomes, "ours", NEED, PEAKS)

    rows = [pair(10, 80, 2), pair(20, 40, 8), pair(None, 40, 100), pair(10, None, 100)]
    assert rows[0].searched == {"ours": 10, "tvm": 80}
    assert rows[2].searched == {"tvm": 40}
    (line,) = searches(rows)
    assert "ours is 4.00× as fast in the geometric mean of 2 tasks" in line
    assert "its searches were 4.00× as long, 2 min 00 s in all, where ours took 30.0 s" in line
    assert searches(rows[2:]) == []


def report(*rows: Row) -> Report:
    versions = {"ours": "0.1.0", "numpy": "2.4", "torch": "2.6"}
    return Report(rows, PEAKS, versions, {"tvm": "apache-tvm"}, "AMD EPYC (znver4), 2 processors", 2, "2026-01-31")


def test_a_report_has_the_keys_that_programs_read() -> None:
    read = msgspec.json.decode(msgspec.json.encode(report(row("gemm", "512", OUTCOMES, "ours", NEED, PEAKS))))
    (first,) = read["rows"]
    assert {"op", "size", "ours_seconds", "peers", "ratio_to_best_peer", "fraction_of_roof"} <= first.keys()
    assert first["op"] == "gemm"
    assert first["size"] == "512"
    assert first["peers"] == {"numpy": 3e-3, "torch": 2.5e-3}
    assert read["absent"] == {"tvm": "apache-tvm"}


def timed(op: str, size: str, ours: float | None, peer: float | None) -> Row:
    times = {"ours": ours, "numpy": peer}
    return row(
        op,
        size,
        {n: "crashed" if t is None else Reading(t, t, t, "recorded") for n, t in times.items()},
        "ours",
        NEED,
        PEAKS,
    )


def test_the_document() -> None:
    crashed: dict[str, Outcome] = {"ours": "crashed: killed\nby SIGSEGV", "numpy": OUTCOMES["numpy"]}
    rows = row("gemm", "512", OUTCOMES, "ours", NEED, PEAKS), row("gemm", "1000x777x513", crashed, "ours", NEED, PEAKS)
    assert document(report(*rows)) == EXPECTED


def test_an_operator_has_the_geometric_mean_of_its_ratios_and_the_least() -> None:
    rows = [timed("gemm", "1", 1e-3, 2e-3), timed("gemm", "2", 2e-3, 1e-3), timed("gemm", "3", 1e-3, 8e-3)]
    rows += [timed("nrm", "0", 1e-3, None), timed("c2d", "0", None, 1e-3), timed("c2d", "1", 1e-3, 4e-3)]
    assert "\n".join(summary(rows)) == SUMMARY


def test_a_row_reads_back() -> None:
    found = row("gemm", "512", OUTCOMES, "ours", NEED, PEAKS)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Row) == found


EXPECTED = """\
AMD EPYC (znver4), 2 processors, 2 threads, 2026-01-31; ours 0.1.0, numpy 2.4, torch 2.6

| op   | size         |            ours |           numpy |           torch | to best | of roof | tuned      |
| ---- | ------------ | --------------: | --------------: | --------------: | ------: | ------: | ---------- |
| gemm | 512          |   2.00 ms ± 5 % |   3.00 ms ± 0 % |   2.50 ms ±40 % |   1.25× |    50 % | 64 trials  |
| gemm | 1000x777x513 |               - |   3.00 ms ± 0 % |               - |       - |       - |            |

| op   |    tasks |    mean |   least | at                |
| ---- | -------: | ------: | ------: | ----------------- |
| gemm |   1 of 2 |   1.25× |   1.25× | gemm 512          |
| all  |   1 of 2 |   1.25× |   1.25× | gemm 512          |

- absent: tvm (not installed: apache-tvm)
- gemm 1000x777x513: ours: crashed: killed by SIGSEGV"""

SUMMARY = """\
| op   |    tasks |    mean |   least | at     |
| ---- | -------: | ------: | ------: | ------ |
| gemm |        3 |   2.00× |   0.50× | gemm 2 |
| nrm  |   0 of 1 |       - |       - |        |
| c2d  |   1 of 2 |   4.00× |   4.00× | c2d 1  |
| all  |   4 of 6 |   2.38× |   0.50× | gemm 2 |"""
