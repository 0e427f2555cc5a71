"""Instructions counted under Callgrind, compared with the recorded counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.instructions import NOISE, collected, compared, counted, llvm_version, missing, recorded, tasks


@pytest.mark.corpus
@pytest.mark.skipif(missing() != "", reason=missing() or "all is here")
@pytest.mark.parametrize("name", sorted(recorded().instructions))
def test_a_kernel_takes_as_many_instructions_as_are_recorded(name: str, tmp_path: Path) -> None:
    before = recorded()
    if before.llvm != llvm_version():
        pytest.skip(f"recorded with LLVM {before.llvm}, and this one makes other code")
    now, then = counted(tasks()[name], tmp_path), before.instructions[name]
    assert abs(now - then) <= NOISE * then, f"{name} takes {now}, not {then}: see `python -m bench.instructions`"


def test_every_kernel_is_recorded() -> None:
    assert set(recorded().instructions) == set(tasks())


def test_a_product_takes_two_instructions_for_each_multiply_add_of_a_vector() -> None:
    fma = 48 * 96 * 256 // 8
    assert fma < recorded().instructions["gemm"] < 2 * fma


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
