"""`--mcpu`: the name of a CPU selects the features that LLVM knows for it."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from tensorc_dsl.backend.llvm.codegen.machine import has_features, processors, require_known, usable, with_cpu
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.api import load
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.ir.target import Target
from tests.ahead.made import HERE

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"


@cache
def features(triple: str, cpu: str) -> frozenset[str]:
    return frozenset(with_cpu(Target(triple=triple), cpu).feature_names)


def macros(cpu: str) -> set[str]:
    """What the system's C compiler says that the CPU has."""
    done = subprocess.run(
        ["cc", f"-march={cpu}", "-dM", "-E", "-"], input="", capture_output=True, text=True, check=False
    )
    if done.returncode or "__x86_64__" not in done.stdout:
        pytest.skip("the C compiler is not one for x86-64 that knows this CPU")
    return {line.split()[1] for line in done.stdout.splitlines()}


SPELLED = {
    name: f"__{name.upper().replace('.', '_')}__"
    for name in (
        "adx aes avx avx2 avx512f avx512bw avx512cd avx512dq avx512vl avx512vnni avx512vbmi avx512fp16 bmi bmi2 f16c fma "
        "gfni lzcnt movbe popcnt sha sse2 sse3 ssse3 sse4.1 sse4.2 sse4a vaes vpclmulqdq xsave avxvnni fma4 xop"
    ).split()
} | {"amx-tile": "__AMX_TILE__", "amx-int8": "__AMX_INT8__", "sse4.1": "__SSE4_1__", "sse4.2": "__SSE4_2__"}


@pytest.mark.corpus
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize(
    "cpu", ["x86-64", "nehalem", "bdver2", "haswell", "skylake-avx512", "znver3", "sapphirerapids"]
)
def test_a_cpu_has_what_the_c_compiler_says(cpu: str) -> None:
    defined = macros(cpu)
    names = set(SPELLED) - {"lzcnt"} if cpu == "bdver2" else set(SPELLED)  # GCC leaves it out there, AMD has it
    assert {n for n in names if n in features(X86, cpu)} == {n for n in names if SPELLED[n] in defined}


@pytest.mark.corpus
def test_arm() -> None:
    assert {"neon", "crc", "aes"} <= features(ARM, "cortex-a72")
    assert not {"lse", "dotprod", "fullfp16", "sve"} & features(ARM, "cortex-a72")
    assert {"neon", "lse", "dotprod", "fullfp16", "bf16", "i8mm", "sve"} <= features(ARM, "neoverse-v1")
    assert "sve2" not in features(ARM, "neoverse-v1")


def test_vectors_are_those_of_the_cpu() -> None:
    widths = {cpu: with_cpu(Target(triple=X86), cpu).vector_bits for cpu in ("nehalem", "haswell", "x86-64-v4")}
    assert widths == {"nehalem": 128, "haswell": 256, "x86-64-v4": 512}
    assert with_cpu(Target(triple=ARM), "neoverse-v1").vector_bits == 128
    assert with_cpu(Target(triple="riscv64-unknown-linux-gnu", vector_bits=512), "sifive-x280").vector_bits == 128


def test_what_is_fast_is_no_feature() -> None:
    assert not [f for f in features(X86, "haswell") if f.startswith(("slow-", "false-deps-", "prefer-"))]
    assert not has_features(Target(triple=X86, cpu="haswell"), ["avx512f"])
    assert has_features(Target(triple=X86, cpu="haswell", features="+avx512bw"), ["avx512f"]) == ("avx512f",)
    assert not has_features(Target(triple=X86, cpu="haswell", features="-avx"), ["avx2"])


@pytest.mark.corpus
def test_everything_else_stays_the_targets() -> None:
    file = HERE / "targets.tsched"
    plain = load(file, target="neon")["tiled"].target
    changed = load(file, target="neon", mcpu="neoverse-n1")["tiled"].target
    assert (changed.cpu, changed.triple, changed.cores, changed.l2) == ("neoverse-n1", ARM, plain.cores, plain.l2)
    assert "dotprod" in changed.feature_names


def run(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(main, [*arguments])
    assert result.exit_code == status, result.output
    return result.output


@pytest.mark.corpus
def test_code_for_it() -> None:
    text = run(
        "compile", str(HERE / "targets.tsched"), "tiled", "--target", "avx2", "--mcpu", "x86-64-v4", "--emit", "asm"
    )
    assert "%zmm" in text
    text = run(
        "show", str(HERE / "targets.tsched"), "tiled", "--target", "avx512", "--mcpu", "haswell", "--stage", "asm"
    )
    assert "%ymm" in text
    assert "%zmm" not in text


def test_help_lists_what_there_is() -> None:
    text = run("sample", str(HERE / "targets.tsched"), "tiled", "--target", "neon", "--mcpu", "help")
    cpus, _, names = text.partition("\n\nFeatures:\n")
    assert cpus.startswith(f"CPUs of {ARM}:\n")
    assert {"  cortex-a72", "  neoverse-v1", "  generic"} <= set(cpus.splitlines())
    assert {"neon", "sve"} <= {line.split()[0] for line in names.splitlines()}


@pytest.mark.parametrize("cpu", ["haswel", "i686", "", "help "])
def test_a_cpu_that_there_is_not(cpu: str) -> None:
    with pytest.raises(TschedError, match="E0915") as raised:
        load(HERE / "targets.tsched", target="avx2", mcpu=cpu)["tiled"]
    assert ("did you mean `haswell`" in str(raised.value.diagnostics[0].notes)) == (cpu == "haswel")


def test_a_target_item_is_held_to_the_same() -> None:
    for wrong, code in (
        (Target(triple=X86, cpu="haswel"), "E0915"),
        (Target(triple=ARM, cpu="haswell"), "E0915"),
        (Target(triple=X86, features="+avx2,+avx3"), "E0916"),
        (Target(triple=X86, features="-64bit"), "E0915"),
    ):
        task = load(HERE / "targets.tsched", target="avx2")["tiled"]
        task.target = wrong
        with pytest.raises(TschedError, match=code):
            task.compile(task.sample(0))
    require_known(Target(triple="pdp11-unknown-unix", cpu="any"))  # making code says that there is no such machine


def test_cpus_of_other_registers_are_not_listed() -> None:
    assert usable(X86, ("haswell", "i686", "znver4")) == ("haswell", "znver4")
    assert "i686" in processors(X86).cpus  # LLVM lists it


def test_a_gpu_has_gpus(tmp_path: Path) -> None:
    file = tmp_path / "gpu.tsched"
    text = (HERE / "targets.tsched").read_text("utf-8")
    file.write_text(f"use std.gpu.targets.{{sm_80}}\n{text}", encoding="utf-8")
    for cpu in ("haswell", "sm_70"):
        assert "E0915" in run("sample", str(file), "tiled", "--target", "sm_80", "--mcpu", cpu, status=1)
    listed = run("sample", str(file), "tiled", "--target", "sm_80", "--mcpu", "help").splitlines()
    assert listed[:2] == ["GPUs of nvptx64-nvidia-cuda:", "  sm_80"] and "  sm_90a" in listed
