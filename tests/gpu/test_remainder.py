"""Remainders of floats on a GPU: the function that its module defines is C's `fmod`, to the last bit."""

from __future__ import annotations

import ctypes
import math
import random
import struct
from collections.abc import Callable
from itertools import product

import llvmlite.binding as llvm
import pytest

from campaigns.emulated import emulated
from tensorc_dsl.backend.cuda.codegen.ptx import define_remainder, device_module, ptx_of
from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.backend.llvm.codegen.function import Module
from tensorc_dsl.backend.llvm.codegen.machine import Machine
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.tuning.machine.host import host_target

EDGES = [
    0.0, 1.0, 0.1, 3.0, 5e-324, 1.5e-323, 2.2250738585072014e-308, 2.225073858507201e-308, 1e-300, 1e300, 2.0**53,
    1.7976931348623157e308, math.inf, math.nan,
]  # fmt: skip


@pytest.fixture(scope="module")
def fmod() -> Callable[[float, float], float]:
    """The function of a module for GPUs, compiled for this machine."""
    module = Module()
    module.declare("double", "fmod", ("double", "double"))
    define_remainder(module)
    text = module.text().replace("define internal double @fmod", "define double @remainder")
    machine = Machine(host_target(1))
    jit = llvm.create_lljit_compiler(machine.machine)
    library = llvm.JITLibraryBuilder().add_object_img(machine.object_code(text)).add_current_process()
    library.export_symbol("remainder")
    tracker = library.link(jit, "remainder")
    made = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)(int(tracker["remainder"]))
    return lambda a, b, _kept=(jit, tracker): made(a, b)


def expected(a: float, b: float) -> float:
    try:
        return math.fmod(a, b)
    except ValueError:
        return math.nan


def same(a: float, b: float) -> bool:
    return struct.pack("d", a) == struct.pack("d", b) or (math.isnan(a) and math.isnan(b))


def test_the_remainder_of_edges_is_that_of_c(fmod: Callable[[float, float], float]) -> None:
    signed = [s * x for x in EDGES for s in (1, -1)]
    assert [(a, b) for a, b in product(signed, signed) if not same(fmod(a, b), expected(a, b))] == []


def test_the_remainder_of_any_two_numbers_is_that_of_c(fmod: Callable[[float, float], float]) -> None:
    rng = random.Random(0)

    def drawn() -> float:
        bits = rng.getrandbits(rng.choice((64, 64, 54, 53, 20)))
        return rng.choice([struct.unpack("d", struct.pack("Q", bits))[0], rng.uniform(-9, 9)])

    pairs = [(drawn(), drawn()) for _ in range(10000)]
    pairs += [(math.nextafter(b * rng.getrandbits(40), a), b) for a, b in pairs if abs(b) < 1e290]
    assert [(a, b) for a, b in pairs if not same(fmod(a, b), expected(a, b))] == []


@pytest.mark.corpus
@pytest.mark.parametrize("t", ["f16", "bf16", "f32", "f64"])
def test_remainders_of_all_types_have_code_and_are_right(t: str) -> None:
    text = f"""
program p(A: {t}[37], B: {t}[37], C: {t}[37]) {{
    bound("block.x") for i in 37 {{ block C {{ spatial vi in 37 = i; C[vi] = A[vi] % B[vi] + A[vi] % 1.0 }} }}
}}
"""
    program = parse_program(Source("p.tsched", text))
    kernels = lower_device(program)
    assert "fma.rn.f64" in ptx_of(device_module(kernels), "sm_80")
    inputs = make_inputs(program, 0)
    want, allowed = bounded(program, inputs)
    fault, found = emulated(kernels, program, inputs)
    assert fault == ""
    assert all((abs(f["C"] - want["C"]) <= allowed["C"]).all() for f in found)
