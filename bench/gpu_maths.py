"""Measures the errors of the maths functions of GPUs on the CPU, for every f32: `python -m bench.gpu_maths`, minutes each.

The instructions are those of the emulation, as far off as PTX allows, up or down by the bits of their arguments. Errors are
relative to the result, in units of roundoff of f32, 2^-24, where the result is a normal number; what is below may be 0.
`f16` and `bf16` are errors before the result is rounded to these, of results that they hold. The status is 1 if one is above
its limit. `--step N` takes every N-th argument.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bench.exact import exact
from bench.maths import Array, compiled
from tensorc_dsl.backend.cuda.codegen.maths import ROUNDED, SINGLE, HardwareMaths, emulate_instruction
from tensorc_dsl.backend.llvm.codegen.function import Function, Module, Value
from tensorc_dsl.backend.llvm.codegen.machine import Machine
from tensorc_dsl.backend.llvm.runtime.kernel import NativeKernel, load
from tensorc_dsl.ir.dtypes import BF16, F16, F32, DType, largest_finite, smallest_normal, unit_roundoff
from tensorc_dsl.ir.maths import BEFORE_ROUNDING
from tensorc_dsl.reference.tolerance import FUNCTION_ROUNDOFFS

CASES = (*((name, F32) for name in SINGLE), *((name, t) for name in ROUNDED for t in (F16, BF16)))
"""The functions, and what their results are rounded to."""

BLOCK = 1 << 15


def kernel_of(function: str, t: DType, count: int) -> NativeKernel:
    """`C[i] = function(A[i])` of `count` f32, as a GPU computes it before the result is rounded to a type."""
    own, module = compiled("exp", count, 1), Module()
    f = Function(module)
    made = HardwareMaths(emulate_instruction)(f, function, (Value(F32, "%x"),), t)
    assert made is not None  # `CASES` has those that there are
    f.define("define internal float @one(float %x) alwaysinline nounwind", result=made.typed)
    text = f"""{module.text()}
define i64 @{own.workspace_symbol}(ptr %arguments) {{
  ret i64 0
}}
define void @{own.symbol}(ptr %arguments, ptr %workspace) {{
entry:
  %from = load ptr, ptr %arguments
  %second = getelementptr ptr, ptr %arguments, i64 1
  %to = load ptr, ptr %second
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %p = getelementptr float, ptr %from, i64 %i
  %x = load float, ptr %p
  %y = call float @one(float %x)
  %q = getelementptr float, ptr %to, i64 %i
  store float %y, ptr %q
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, {count}
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
    return load(replace(own, object_code=Machine(own.target).object_code(text), llvm_ir=text))


@dataclass(frozen=True, slots=True)
class Found:
    """The largest relative error in units of roundoff of f32, its argument, what is allowed, and how many were measured."""

    error: float
    at: float
    limit: float
    arguments: int


def arguments(step: int) -> Iterator[Array]:
    """Every so many-th f32, in blocks, of which the last one is filled up."""
    for begin in range(0, 1 << 32, BLOCK * step):
        numbers = np.minimum(np.arange(begin, begin + BLOCK * step, step, dtype=np.uint64), 2**32 - 1)
        yield numbers.astype(np.uint32).view(np.float32)


def measure(function: str, t: DType, step: int) -> Found:
    """The largest error of a function whose result is rounded to a type."""
    kernel, out = kernel_of(function, t, BLOCK), np.empty(BLOCK, np.float32)
    limit = FUNCTION_ROUNDOFFS if t == F32 else BEFORE_ROUNDING[function] / unit_roundoff(F32)
    worst, at, count = 0.0, 0.0, 0
    for x in arguments(step):
        kernel(x, out)
        with np.errstate(all="ignore"):
            want = np.asarray(exact(function, x), np.float64)
            size = np.abs(want)
            error = np.abs(out.astype(np.float64) - want) / (size * unit_roundoff(F32))
            tiny = (size < max(smallest_normal(F32), smallest_normal(t))) | (np.abs(x) < smallest_normal(F32))
            error[tiny & (np.abs(out) <= np.maximum(size, smallest_normal(t)) * 1.001)] = 0.0
            over = size * (1 + 1e-6) > largest_finite(t)
            error[over & (np.abs(out) * (1 + 1e-5) > largest_finite(t)) & (np.sign(out) == np.sign(want))] = 0.0
            error[(out == want) | (np.isnan(out) & np.isnan(want))] = 0.0
            error[np.isnan(error)] = np.inf
        k = int(np.argmax(error))
        if error[k] > worst:
            worst, at = float(error[k]), float(x[k])
        count += len(x)
    return Found(worst, at, limit, count)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--functions", nargs="+", default=[name for name, _ in CASES])
    given, wrong = parser.parse_args(), 0
    for name, t in CASES:
        if name in given.functions:
            found = measure(name, t, given.step)
            wrong |= found.error > found.limit
            of = f"{found.error:.2f} of {found.limit:.2f} units of roundoff at {found.at!r}"
            print(f"{name:<8} {t.name:<5} {of}, {found.arguments:,} arguments", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
