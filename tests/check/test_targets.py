"""Targets of a file: facts, mistakes, and the target for which a task is expanded."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.base.diagnostic import TschedError, render
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.items import FACTS, target_of
from tensorc_dsl.check.scope import CheckedFile, load_source
from tensorc_dsl.check.uses import Found
from tensorc_dsl.interp.space import task_space
from tensorc_dsl.ir.target import Target

COPY = "compute copy(A: f32[M]) -> B: f32[M] { B[i] = A[i] }\ntask t = copy(M=64)\n"
WIDTH = 'module width(p: Program) { annotate(p, "x", target.vector_bits) }\n'
AVX2 = 'target avx2 = llvm(cpu="haswell", vector_bits=256, cores=4, features=["fma", "avx2"])\n'
NATIVE = Target(vector_bits=512, cores=3)


def load(text: str, lib: str = "") -> CheckedFile:
    def resolve(path: tuple[str, ...], user: Source) -> Found:
        return Found(path[0], (Source("lib.tsched", lib),)) if path == ("lib",) else Found("")

    return load_source(Source("main.tsched", text), resolve)


def test_an_item_is_a_target_and_what_it_leaves_out_is_plain() -> None:
    target = target_of(load(AVX2).targets["avx2"])
    assert target == Target("llvm", "haswell", "+avx2,+fma", 256, 4)
    assert target.feature_names == ("avx2", "fma")
    everything = ", ".join(f"{f}={16 if f not in ('triple', 'cpu', 'features', 'vector_bits') else 64}" for f in FACTS)
    everything = (
        everything.replace("cpu=64", 'cpu="x"').replace("triple=64", 'triple="x"').replace("features=64", "features=[]")
    )
    assert target_of(load(f"target all = llvm({everything})").targets["all"]).l3 == 16


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("target x = cuba(cores=1)", "E0227", "no target `cuba`"),
        ("target x = llvm(core=1)", "E0245", "no fact `core`"),
        ("target x = llvm(cores=0)", "E0245", "a positive int"),
        ("target x = llvm(cores=-1)", "E0245", "a positive int"),
        ("target x = llvm(cores=1.5)", "E0245", "a positive int"),
        ('target x = llvm(l1="big")', "E0245", "a positive int"),
        ("target x = llvm(vector_bits=100)", "E0245", "a power of two"),
        ("target x = llvm(cpu=haswell)", "E0245", "LLVM's name"),
        ("target x = llvm(triple=64)", "E0245", "aarch64-unknown-linux-gnu"),
        ('target x = llvm(features="avx2")', "E0245", "a list of strings"),
        ("target x = llvm(cores=1, cores=2)", "E0229", "bound twice"),
        ("target llvm = llvm(cores=1)", "E0245", "a target already"),
        ("target native = llvm(cores=1)", "E0245", "a target already"),
        ("target x = cuda()", "E0245", "does not say its `threads`, `shared_memory`, `registers`"),
        ("target x = cuda(threads=1024, registers=65536)", "E0245", "does not say its `shared_memory`"),
        (
            "target x = cuda(threads=0, shared_memory=0, registers=65536)",
            "E0245",
            "`threads` of a target is a positive int",
        ),
        ("space s for avx3 { }\n" + AVX2, "E0227", "no target `avx3`"),
    ],
)
def test_mistakes(text: str, code: str, part: str) -> None:
    with pytest.raises(TschedError) as problem:
        load(text)
    (d,) = problem.value.diagnostics
    assert d.code == code
    assert part in d.message
    assert d.span is not None


def test_a_gpu_without_its_limits_has_the_repair() -> None:
    """A search would find no schedule, and say so inside the library."""
    with pytest.raises(TschedError) as problem:
        load("// A GPU.\ntarget x = cuda(cores=108)\n" + COPY)
    assert render(problem.value.diagnostics[0]) == (
        "error[E0245]: target `x` does not say its `threads`, `shared_memory`, `registers`\n"
        " --> main.tsched:2:12\n"
        "  |\n"
        "2 | target x = cuda(cores=108)\n"
        "  |            ^^^^\n"
        "  = help: write them, `cuda(threads=1024, shared_memory=49152, registers=65536)`, or `use std.gpu.targets`"
    )


def annotated(file: CheckedFile, chosen: str | None = None) -> int | float | str | bool:
    space = task_space(file, "t", NATIVE, chosen)
    return dict(space.sample(np.random.default_rng(0)).program.annotations)["x"]


def test_a_space_is_for_the_target_that_it_names_unless_another_one_is_chosen() -> None:
    file = load(COPY + WIDTH + AVX2 + "target wide = llvm(vector_bits=1024)\nspace s for avx2 { width }")
    assert annotated(file) == 256
    assert annotated(file, "wide") == 1024
    assert annotated(file, "native") == 512
    assert task_space(file, "t", NATIVE).target.cores == 4
    assert annotated(load(COPY + WIDTH + AVX2 + "space s for llvm { width }")) == 512
    with pytest.raises(TschedError, match=r"E0555: `main.tsched` has no target `avx3`"):
        annotated(file, "avx3")


def test_rules_and_whens_see_the_target() -> None:
    text = COPY + (
        'module only(p: Program, n: int) when target.has("avx2") { annotate(p, "x", n) }\n'
        "space s for avx2 { only(n=target.cores * target.vector_registers) }\n"
    )
    assert annotated(load(text + AVX2)) == 64
    space = task_space(load(text + AVX2), "t", NATIVE, "native")
    assert space.sample(np.random.default_rng(0)).lines == ()


def test_a_used_space_brings_its_target_and_a_target_can_be_used() -> None:
    lib = WIDTH + AVX2 + "space s for avx2 { width }"
    assert annotated(load("use lib.{s}\n" + COPY, lib)) == 256
    other = "use lib.{s}\ntarget avx2 = llvm(vector_bits=128)\n"
    assert annotated(load(other + COPY, lib)) == 256
    assert annotated(load(other + COPY, lib), "avx2") == 128
    assert annotated(load("use lib\n" + COPY, lib), "avx2") == 256
