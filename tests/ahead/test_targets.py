"""Code for other machines, compiled and read here: it uses their vector width, and small buffers stay in registers."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.api import Task, load
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.records.trial import target_key

FILE = Path(__file__).with_name("targets.tsched")

FMA = {"avx2": r"vfmadd\d+ps\s.*%ymm", "avx512": r"vfmadd\d+ps\s.*%zmm", "neon": r"fmla\s+v\d+\.4s"}
"""A fused multiply-add of whole vectors."""

STACK = re.compile(r"\(%r[sb]p|\[sp|\[x29")


@cache
def task(target: str, name: str) -> Task:
    return load(FILE, target=target)[name]


def assembly(target: str, name: str, seed: int = 0) -> str:
    found = task(target, name)
    return found.library(found.sample(seed)).make("asm").decode()


def hot_loop(text: str, pattern: str) -> list[str]:
    """The basic block with most instructions that the pattern describes: from a label or a branch to the next."""
    blocks = re.split(r"^\.?\w+:.*$|^\s+(?:j\w+|b\.\w+|cbn?z)\s.*$", text, flags=re.MULTILINE)
    return max(blocks, key=lambda b: len(re.findall(pattern, b))).splitlines()


@pytest.mark.corpus
@pytest.mark.parametrize(("target", "sums"), [("avx2", 12), ("avx512", 24), ("neon", 24)])
def test_a_tile_that_fits_the_registers_stays_there(target: str, sums: int) -> None:
    loop = hot_loop(assembly(target, "tiled"), FMA[target])
    assert sum(bool(re.search(FMA[target], line)) for line in loop) == sums
    assert not [line for line in loop if STACK.search(line)]


@pytest.mark.parametrize(("target", "register", "rows", "vectors"), [("avx2", "ymm", 6, 2), ("avx512", "zmm", 8, 3)])
def test_a_tile_loads_each_operand_once(target: str, register: str, rows: int, vectors: int) -> None:
    vector, place = rf"%{register}\d+", r"-?\d*\(%r\w+[^)]*\)"
    kinds = {
        "products": rf"vfmadd\d+ps\s+{vector}, {vector}, {vector}",
        "broadcasts": rf"vbroadcastss\s+{place}, {vector}",
        "loads": rf"vmovups\s+{place}, {vector}",
        "counters": r"(?:add|inc|dec|cmp)q\s.*",
    }
    loop = [line.strip() for line in hot_loop(assembly(target, "tiled"), FMA[target]) if line.strip()]
    found = {kind: [line for line in loop if re.fullmatch(pattern, line)] for kind, pattern in kinds.items()}
    assert [line for line in loop if not any(line in lines for lines in found.values())] == []
    assert {kind: len(lines) for kind, lines in found.items()} == {
        "products": rows * vectors,
        "broadcasts": rows,
        "loads": vectors,
        "counters": 2,
    }


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("target", list(FMA))
def test_the_default_space_keeps_to_the_vectors_of_the_target(target: str, seed: int) -> None:
    text = assembly(target, "searched", seed)
    assert "zmm" not in text or target == "avx512"
    if target == "neon":
        assert not re.search(r"%[xyz]mm", text)


@pytest.mark.corpus
@pytest.mark.parametrize("target", list(FMA))
def test_softmax_calls_no_function_of_c(target: str) -> None:
    text = assembly(target, "rows")
    called = set(re.findall(r"^\s+(?:callq?|bl|jmp|b)\s+([a-z]\w*)(?:@PLT)?$", text, re.MULTILINE))
    library = {"posix_memalign", "free", "rows", "worker", "memset", "memcpy", "getauxval"}
    assert {c for c in called if not re.match("tensorc_|pthread_|sched_|clock_|getpid", c)} <= library


def test_an_object_is_of_its_machine() -> None:
    assert (
        task("neon", "tiled").compile(task("neon", "tiled").sample(0)).code.object_code[18:20] == b"\xb7\x00"
    )  # EM_AARCH64
    assert (
        task("avx2", "tiled").compile(task("avx2", "tiled").sample(0)).code.object_code[18:20] == b"\x3e\x00"
    )  # EM_X86_64


def test_the_pool_is_that_of_the_other_machine() -> None:
    assert re.search(r"^\s+(yield|hint\s+#1)$", assembly("neon", "tiled"), re.MULTILINE)
    assert re.search(r"^\s+pause$", assembly("avx2", "tiled"), re.MULTILINE)


def test_a_machine_that_llvm_does_not_know_is_an_error() -> None:
    found = load(FILE, target="neon")["tiled"]
    found.target = Target(triple="pdp11-unknown-unix")
    with pytest.raises(TschedError, match="E0908"):
        found.compile(found.sample(0))


def test_records_of_machines_are_kept_apart() -> None:
    keys = {target_key(task(name, "tiled").target, 2) for name in FMA} | {target_key(host_target(2), 2)}
    assert len(keys) == 4
    x86, arm = (Target(triple=f"{a}-unknown-linux-gnu") for a in ("x86_64", "aarch64"))
    assert x86.key != arm.key
    assert (x86.vector_registers, arm.vector_registers) == (16, 32)


def test_what_cannot_run_here_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorc_dsl.backend.llvm.backend.native_triple", lambda: "x86_64-unknown-linux-gnu")
    found = task("neon", "tiled")
    trace = found.sample(0)
    for use in (lambda: found.measure(trace), lambda: found.replay(trace), found.search):
        with pytest.raises(TschedError, match="E0914"):
            use()
