"""Instructions counted under Callgrind, and held beside what was counted before."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.instructions import FILE, collected, compared, counted
from tensorc_dsl.api import load
from tests.ahead.made import needs_compiler


@needs_compiler
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="there is no Valgrind")
def test_a_product_takes_two_instructions_for_each_multiply_add_of_a_vector(tmp_path: Path) -> None:
    fma = 48 * 96 * 256 // 8
    assert fma < counted(load(FILE, target="avx2", threads=1)["gemm"], tmp_path) < 2 * fma


def test_the_count_is_read_from_what_callgrind_says() -> None:
    assert collected("==7== Events    : Ir\n==7== Collected : 284332\n==7==\n") == 284332
    with pytest.raises(ValueError, match="no count:\nnothing"):
        collected("nothing")


def test_what_takes_more_than_before_is_seen() -> None:
    lines, more = compared({"a": 1100, "b": 500, "new": 7}, {"a": 1000, "b": 1000})
    assert lines == [
        "kernel           now  recorded",
        "a               1100      1000  +10.0%",
        "b                500      1000  -50.0%",
        "new                7",
    ]
    assert more
    assert not compared({"a": 1000, "b": 999}, {"a": 1000, "b": 1000})[1]
