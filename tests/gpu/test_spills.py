"""A schedule whose kernels would spill registers is refused where draws are ranked, if there is an assembler that says so."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

import tensorc_dsl as td
from tensorc_dsl.backend.cuda import backend, compiled
from tensorc_dsl.backend.cuda.compiled import registers_of, tool
from tensorc_dsl.backend.cuda.lower.kernels import DeviceProgram
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.cuda.model.cycles import Estimate
from tensorc_dsl.backend.protocol import Registers
from tensorc_dsl.ir.sizes import Sizes
from tensorc_dsl.ir.target import Target
from tests.gpu.kernels import ptx
from tests.gpu.pretend import pretended
from tests.gpu.test_counts import tuned
from tests.stdlib.gpu_checks import task

SAID = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 't_0' for 'sm_80'
ptxas info    : Function properties for t_0
    8 bytes stack frame, {stored} bytes spill stores, {read} bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers
ptxas info    : Compiling entry function 't_1' for 'sm_80'
ptxas info    : Function properties for t_1
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers
"""

SPILLS = "`t_0` stores 16 and loads 24 bytes a thread for want of registers"


def assembler(folder: Path, monkeypatch: pytest.MonkeyPatch, stored: int, read: int) -> None:
    """A `ptxas` on PATH that says so much of each file and writes none, and an `nvdisasm` that prints nothing."""
    said = f"cat >&2 <<'END'\n{SAID.format(stored=stored, read=read)}END\n"
    for name, does in (("ptxas", said), ("nvdisasm", "")):
        program = folder / name
        program.write_text(f"#!/bin/sh\n{does}")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


@pytest.mark.parametrize(("stored", "read", "wanted"), [(16, 24, SPILLS), (0, 0, "")])
def test_spills_are_told_by_kernel(
    stored: int, read: int, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assembler(tmp_path, monkeypatch, stored, read)
    found = registers_of("", "sm_80")
    assert (found.threads, found.spilled) == ({"t_0": 255, "t_1": 32}, wanted)


def test_the_assembler_says_so_of_a_kernel_with_few_registers(tmp_path: Path) -> None:
    if tool("ptxas") is None:
        pytest.skip("ptxas is not installed")
    t = task(tmp_path, "matmul(M=64, N=64, K=64)", "default")
    text = ptx(lower_device(t.sample(3).program), "sm_80")
    assert registers_of(text, "sm_80").spilled == ""
    few = text.replace(".minnctapersm 1", ".maxnreg 24")
    assert few != text
    assert "bytes a thread for want of registers" in registers_of(few, "sm_80").spilled


@pytest.mark.corpus
def test_draws_that_spill_are_not_ranked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task(tmp_path, "matmul(M=32, N=32, K=8)")
    assembler(tmp_path, monkeypatch, 16, 24)
    said = tuned(tmp_path)
    assert said.exit_code == 3
    reason = f"the schedule spills registers: {SPILLS}; make the tiles of a thread smaller"
    assert f"\n3 × refused: {reason}\n" in said.stderr
    assert f"\n3 trials without a kernel: {reason}\n" in said.stdout
    found = json.loads(tuned(tmp_path, "--resume", "--json").stdout)
    assert (found["reasons"], found["wrong"], found["valid"]) == ({reason: 3}, [], [])


@pytest.mark.corpus
def test_draws_are_ranked_by_the_registers_that_the_assembler_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task(tmp_path, "matmul(M=32, N=32, K=8)")
    assembler(tmp_path, monkeypatch, 0, 0)
    seen: list[Mapping[str, int]] = []

    def estimates(p: DeviceProgram, target: Target, sizes: Sizes, known: Registers) -> tuple[Estimate, ...]:
        seen.append(known.threads)
        return ()

    monkeypatch.setattr(backend, "estimates", estimates)
    assert tuned(tmp_path).exit_code == 0 and seen == 3 * [{"t_0": 255, "t_1": 32}]


@pytest.mark.corpus
@pytest.mark.parametrize(("stored", "statuses"), [(16, {"refused": 1}), (0, {"ok": 1})])
def test_a_search_that_times_kernels_passes_over_what_spills(
    stored: int, statuses: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU that is pretended, and multiplies whatever the kernel does."""
    monkeypatch.setenv("FAKE_PRODUCT", "32,32,8")
    assembler(tmp_path, monkeypatch, stored, stored)
    with pretended():
        path = tmp_path / "t.tsched"
        path.write_text("use std.ops\nuse std.gpu.default.{default}\ntask t = matmul(M=32, N=32, K=8) with default\n")
        found = td.load(path, target="native-cuda")["t"].search(trials=1)
    assert found.statuses == statuses
    said = (
        f"the schedule spills registers: `t_0` stores {stored} and loads {stored} bytes a thread for want of registers"
    )
    assert all(o.message.startswith(said) for o in found.outcomes if o.seconds is None)


@pytest.mark.corpus
def test_without_an_assembler_draws_are_ranked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task(tmp_path, "matmul(M=32, N=32, K=8)")
    for room in (backend, compiled):
        monkeypatch.setattr(room, "tool", lambda _: None)
    said = tuned(tmp_path)
    assert said.exit_code == 0 and "t on sm_80: by the cycles of a model, not timed" in said.stdout
    assert re.search(r"^3 trials in .*: 3 ok$", said.stdout, re.MULTILINE)
