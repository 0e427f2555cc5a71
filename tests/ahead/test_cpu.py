"""A library checks the processor first, and does nothing on one that lacks its features."""

from __future__ import annotations

import ctypes
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import pytest

from tensorc_dsl.backend.llvm.ahead.cpu import ARM, AVX10, X86, required_features, write_cpu_check
from tensorc_dsl.backend.llvm.codegen.function import Module
from tensorc_dsl.backend.llvm.codegen.machine import Machine
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.api import Task, load
from tensorc_dsl.ir.target import Target
from tests.ahead.made import HERE, needs_compiler, run_c

X86_LINUX, ARM_LINUX = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"

on_x86 = pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="asks an x86-64 processor")


def answers(folder: Path, architecture: str, questions: list[list[str]], c: str = "") -> ctypes.CDLL:
    """A library whose `has_K` asks for the features of question K."""
    module = Module()
    for k, features in enumerate(questions):
        write_cpu_check(module, f"check.{k}", architecture, features)
        module.functions.append(
            f"define i32 @has_{k}() {{\n  %r = call i1 @check.{k}()\n  %x = zext i1 %r to i32\n  ret i32 %x\n}}"
        )
    (folder / "asks.o").write_bytes(Machine(Target()).object_code(module.text()))
    (folder / "more.c").write_text(f"typedef int unused;\n{c}", encoding="utf-8")
    command = ["cc", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-o", "asks.so", "asks.o", "more.c"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "asks.so"))


@on_x86
@needs_compiler
def test_the_processor_has_what_llvm_finds(tmp_path: Path) -> None:
    found = dict(llvm.get_host_cpu_features())
    names = [*X86, *AVX10]
    library = answers(tmp_path, "x86_64", [[name] for name in names])
    assert {n: bool(library[f"has_{k}"]()) for k, n in enumerate(names)} == {n: found[n] for n in names}


@on_x86
@needs_compiler
def test_all_features_are_asked_for(tmp_path: Path) -> None:
    found = dict(llvm.get_host_cpu_features())
    here = [n for n in X86 if found[n]]
    missing = [n for n in (*X86, *AVX10) if not found[n]]
    library = answers(tmp_path, "x86_64", [here, *([*here, n] for n in missing), []])
    got = [library[f"has_{k}"]() for k in range(len(missing) + 2)]
    assert got == [1, *[0] * len(missing), 1]
    assert [library[f"has_{k}"]() for k in range(len(missing) + 2)] == got  # nothing else is remembered


LINUX = {"neon": (1 << 1, 0), "crc": (1 << 7, 0), "lse": (1 << 8, 0), "fullfp16": (3 << 9, 0), "dotprod": (1 << 20, 0),
         "sve": (1 << 22, 0), "sve2": (0, 1 << 1), "i8mm": (0, 1 << 13), "bf16": (0, 1 << 14)}  # fmt: skip
"""Bits of AT_HWCAP and AT_HWCAP2, as the kernel's `asm/hwcap.h` has them."""


@needs_compiler
def test_the_words_of_linux_on_arm(tmp_path: Path) -> None:
    c = """
unsigned long words[2];
unsigned long getauxval(unsigned long k) { return k == 16 ? words[0] : k == 26 ? words[1] : 0; }
"""
    names = [*LINUX, "all"]
    library = answers(tmp_path, "aarch64", [*([n] for n in LINUX), list(LINUX)], c)
    words = (ctypes.c_ulong * 2).in_dll(library, "words")
    every = tuple(sum({w[k] for w in LINUX.values()}) for k in (0, 1))

    def asked(first: int, second: int) -> set[str]:
        words[:] = [first, second]
        return {n for k, n in enumerate(names) if library[f"has_{k}"]()}

    assert asked(0, 0) == set()
    assert asked(1 << 9, 0) == set()  # half of `fullfp16`
    assert asked(LINUX["dotprod"][0], 0) == {"dotprod"}
    assert asked(0, LINUX["bf16"][1]) == {"dotprod", "bf16"}  # what was found is not looked for again
    assert asked(*every) == set(names)


def test_what_a_cpu_requires() -> None:
    haswell = required_features(Target(triple=X86_LINUX, cpu="haswell"))
    assert {"avx2", "bmi2", "fma", "f16c", "popcnt"} <= set(haswell)
    assert not {"avx512f", "sse4a"} & set(haswell)
    assert required_features(Target(triple=X86_LINUX, cpu="x86-64")) == ()
    assert {"avx", "avx2"} <= set(required_features(Target(triple=X86_LINUX, features="+avx2")))
    assert required_features(Target(triple=ARM_LINUX, cpu="cortex-a72")) == ("crc",)
    assert {"sve", "bf16", "dotprod", "lse"} <= set(required_features(Target(triple=ARM_LINUX, cpu="neoverse-v1")))
    for triple in ("arm64-apple-darwin", "riscv64-unknown-linux-gnu"):
        assert required_features(Target(triple=triple)) == ()


def test_every_name_is_one_of_llvms() -> None:
    for triple, table in ((X86_LINUX, (*X86, *AVX10)), (ARM_LINUX, tuple(ARM))):
        some = required_features(Target(triple=triple, features=",".join(f"+{n}" for n in table)))
        assert set(table) - set(some) <= {"fp-armv8", "neon"}


def for_another(name: str) -> Task:
    """A task for a CPU that this machine does not have, whichever it is."""
    here = dict(llvm.get_host_cpu_features())
    for cpu in ("sapphirerapids", "bdver4", "diamondrapids"):
        if not all(here[f] for f in required_features(Target(cpu=cpu))):
            return load(HERE / "tasks.tsched", threads=2, mcpu=cpu)[name]
    pytest.skip("this machine has everything")


@on_x86
@needs_compiler
def test_a_processor_that_lacks_something(tmp_path: Path) -> None:
    for name in ("mm", "weighted"):
        task = for_another(name)
        for kind, suffix in (("obj", "o"), ("header", "h")):
            task.export(task.sample(0), tmp_path / f"{name}.{suffix}", kind)  # type: ignore[arg-type]
    program = """
#include "mm.h"
#include "weighted.h"
#include <stdio.h>
#include <string.h>

static float a[weighted_A_COUNT(64)], b[weighted_W_COUNT], c[weighted_C_COUNT(64)];

int main(void) {
    int32_t got[6];
    memset(c, 1, sizeof c);
    got[0] = mm(a, b, c);
    got[1] = mm_checked(NULL, 0);
    got[2] = weighted(3, a, b, c);
    got[3] = weighted_prepare(b, NULL);
    got[4] = weighted_run_prepared(3, a, c, NULL);
    got[5] = weighted_run_prepared_checked(NULL, 0, NULL);
    for (int k = 0; k < 6; k++) printf("%d ", got[k] == TENSORC_CPU);
    for (size_t k = 0; k < sizeof c; k++)
        if (((char *)c)[k] != 1) return 1;
    return weighted_prepared_bytes() == weighted_PREPARED_BYTES ? 0 : 2;
}
"""
    assert run_c(tmp_path, program, "mm.o", "weighted.o") == "1 1 1 1 1 1 "


@on_x86
def test_it_is_not_measured_here() -> None:
    task = for_another("mm")
    with pytest.raises(TschedError, match=r"E0914: `mm` is for a CPU `\w+`, and this machine lacks \w+"):
        task.measure(task.sample(0))


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("target", "foreign"),
    [("avx512", r"^\s+v[a-z]|%[yz]mm|^\s+(?:shlx|sarx|shrx|mulx|andn)"), ("neon", r"\bz\d+\.|\bp\d+/")],
)
def test_what_c_calls_runs_everywhere(target: str, foreign: str) -> None:
    mcpu = {"avx512": "sapphirerapids", "neon": "neoverse-v1"}[target]
    task = load(HERE / "targets.tsched", target=target, mcpu=mcpu)["tiled"]
    text = task.library(task.sample(0)).make("asm").decode()
    bodies: dict[str, Any] = {
        m[1]: m[2]
        for m in re.finditer(r"^(tiled\w*(?:\.cpu)?):[^\n]*\n(.*?)^\.Lfunc_end", text, re.MULTILINE | re.DOTALL)
    }
    assert {"tiled", "tiled_checked", "tiled.cpu"} <= bodies.keys()
    for body in bodies.values():
        assert not re.search(foreign, body, re.MULTILINE)
