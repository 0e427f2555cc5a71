"""Rows for programs and for people."""

from __future__ import annotations

import msgspec
import pytest

from bench.against.roof import Need
from bench.against.table import Report, Row, Table, remarks, row
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
    assert remarks([failed]) == ["gemm 512: ours: crashed"]


def test_a_row_is_held_under_the_peak_that_is_known_in_the_end() -> None:
    early = row("gemm", "512", OUTCOMES, "ours", NEED, {"f32": 0.6e9})
    assert early.fraction_of_roof == pytest.approx(1.67, abs=0.01)
    assert early.under(PEAKS).fraction_of_roof == pytest.approx(0.5)
    # Above 4 GFLOP/s it is memory that holds it back, and another kind's peak is none of its.
    assert early.under({"f32": 8e9}).fraction_of_roof == pytest.approx(0.25)
    assert early.under({"f32": 2e9, "u8i8": 0.1e9}).fraction_of_roof == pytest.approx(0.5)
    failed = row("gemm", "512", {"ours": "crashed"}, "ours", NEED, {"f32": 0.6e9})
    assert failed.under(PEAKS).fraction_of_roof is None


def test_a_report_has_the_keys_that_programs_read() -> None:
    report = Report(
        (row("gemm", "512", OUTCOMES, "ours", NEED, PEAKS),), PEAKS, {"numpy": "2"}, {"tvm": "apache-tvm"}, "znver4", 2
    )
    read = msgspec.json.decode(msgspec.json.encode(report))
    (first,) = read["rows"]
    assert {"op", "size", "ours_seconds", "peers", "ratio_to_best_peer", "fraction_of_roof"} <= first.keys()
    assert first["op"] == "gemm"
    assert first["size"] == "512"
    assert first["peers"] == {"numpy": 3e-3, "torch": 2.5e-3}
    assert read["absent"] == {"tvm": "apache-tvm"}


def test_the_table() -> None:
    table = Table([("gemm", "1000x777x513")], "ours", ["numpy", "torch", "jax"])
    crashed: dict[str, Outcome] = {"ours": "crashed", "numpy": OUTCOMES["numpy"]}
    rows = [
        row("gemm", "512", OUTCOMES, "ours", NEED, PEAKS),
        row("gemm", "1000x777x513", crashed, "ours", NEED, PEAKS),
    ]
    assert table.text(rows) == EXPECTED


def test_a_row_reads_back() -> None:
    found = row("gemm", "512", OUTCOMES, "ours", NEED, PEAKS)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Row) == found


EXPECTED = """\
op    size                      ours             numpy             torch               jax  to best  of roof  tuned
gemm  512              2.00 ms ± 5 %     3.00 ms ± 0 %     2.50 ms ±40 %                 -    1.25×     50 %  64 trials
gemm  1000x777x513                 -     3.00 ms ± 0 %                 -                 -        -        -
gemm 1000x777x513: ours: crashed"""
