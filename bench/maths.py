"""Measures the speed of the maths functions of kernels: `python -m bench.maths` prints ns per element, beside NumPy and the C
library's function. `bench.maths_errors` searches for the largest errors.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.backend.llvm.codegen.compile import Compiled, compile_kernel
from tensorc_dsl.backend.llvm.codegen.machine import Machine
from tensorc_dsl.backend.llvm.codegen.maths import CODES
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.backend.llvm.runtime.kernel import NativeKernel, load
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.maths import MATHS
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.reference.maths import NUMERICS
from tensorc_dsl.tuning.machine.host import host_target

Array = NDArray[Any]


FUNCTIONS = tuple(name for name, c in CODES.items() if c.ulps is not None)
"""The functions with errors."""

FORMATS = {"f32": (np.float32, np.float64, -126, 127, 23), "f64": (np.float64, np.longdouble, -1022, 1023, 52)}
"""By the type of a kernel its arrays, what exact values are in, the exponents of normal numbers, the bits of a fraction."""

LANES = 16
SPEED_COUNT = 4096
"""Elements of an array of 16 KB."""

_SPEED_RANGES = {
    **dict.fromkeys(("log", "log2", "log10", "rsqrt"), (0.01, 100.0)),
    "log1p": (-0.9, 100.0), "acosh": (1.0, 100.0), "pow": (0.01, 10.0),
    **dict.fromkeys(("asin", "acos", "atanh"), (-1.0, 1.0)),
}  # fmt: skip


def compiled(function: str, count: int, lanes: int, target: Target | None = None, t: str = "f32") -> Compiled:
    """`C[i] = function(A[i])`, or of A and B, on `count` numbers of a type in vectors of `lanes`; one array for each.

    For this machine, or another.
    """
    known = MATHS[function]
    names = ("A", "B")[: known.count]
    params = ", ".join([*(f"{name}: {t}[{count}]" for name in names), f"C: {'bool' if known.tells else t}[{count}]"])
    text = f"""
program f({params}) {{
    for i in {count // lanes} {{
        vectorized for j in {lanes} {{
            block C {{
                spatial v in {count} = i * {lanes} + j
                C[v] = {function}({", ".join(f"{name}[v]" for name in names)})
            }}
        }}
    }}
}}
"""
    p = parse_program(Source("maths.tsched", text))
    verify(p)
    return compile_kernel(lower_cpu(p), target or host_target(1), 1)


def ulps(got: Array, exact: Array, t: str = "f32") -> Array:
    """Errors in units in the last place that a float of the type and of the size of the exact result has; infinite where one
    is NaN and the other is not, or an infinity is wrong."""
    stored, wide, least, largest, fraction = FORMATS[t]
    with np.errstate(all="ignore"):
        exponent = np.clip(np.frexp(exact)[1] - 1, least, largest)
        error = np.abs(got.astype(wide) - exact) / np.ldexp(wide(1), exponent - fraction)
        strange = np.flatnonzero(~np.isfinite(error))
        g, e = got[strange], exact[strange]
        same = (g == e.astype(stored)) | np.isnan(g) & np.isnan(e)
    error[strange] = np.where(same, 0.0, np.inf)
    return error


def library_kernel(function: str, count: int) -> NativeKernel:
    """The same loop around calls of the C library's float function."""
    own = compiled(function, count, LANES)
    arguments = MATHS[function].count
    loads = [
        f"  %p{k} = getelementptr ptr, ptr %arguments, i64 {k}\n  %b{k} = load ptr, ptr %p{k}"
        for k in range(arguments + 1)
    ]
    values = [
        f"  %q{k} = getelementptr float, ptr %b{k}, i64 %i\n  %x{k} = load float, ptr %q{k}" for k in range(arguments)
    ]
    text = "\n".join(
        [
            f"declare float @{function}f({', '.join(['float'] * arguments)})",
            f"define i64 @{own.workspace_symbol}(ptr %arguments) {{\n  ret i64 0\n}}",
            f"define void @{own.symbol}(ptr %arguments, ptr %workspace) {{\nentry:",
            *loads,
            "  br label %loop\nloop:",
            "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *values,
            f"  %y = call float @{function}f({', '.join(f'float %x{k}' for k in range(arguments))})",
            f"  %to = getelementptr float, ptr %b{arguments}, i64 %i\n  store float %y, ptr %to",
            f"  %next = add i64 %i, 1\n  %more = icmp ult i64 %next, {count}",
            "  br i1 %more, label %loop, label %done\ndone:\n  ret void\n}",
        ]
    )
    return load(replace(own, object_code=Machine(own.target).object_code(text), llvm_ir=text))


ROUNDS = 200


def best_call(run: Callable[[], object]) -> float:
    """The shortest time of a call in some rounds, in seconds."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begin)
    return best


def speed(function: str) -> tuple[float, float, float | None]:
    """ns per element of ours, of NumPy's or SciPy's in float32, and of the C library's where it has the function."""
    rng = np.random.default_rng(0)
    low, high = _SPEED_RANGES.get(function, (-10.0, 10.0))
    x = rng.uniform(low, high, SPEED_COUNT).astype(np.float32)
    arguments = (x, x[::-1].copy()) if MATHS[function].count == 2 else (x,)
    out = np.empty_like(x)
    unit = 1e9 / SPEED_COUNT
    ours = min(load(compiled(function, SPEED_COUNT, LANES)).time((*arguments, out), ROUNDS))
    theirs = best_call(lambda: NUMERICS[function].value(*arguments))
    if function in ("sigmoid", "rsqrt"):
        return ours * unit, theirs * unit, None
    c = min(library_kernel(function, SPEED_COUNT).time((*arguments, out), ROUNDS))
    return ours * unit, theirs * unit, c * unit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", nargs="+", choices=FUNCTIONS, default=FUNCTIONS)
    arguments = parser.parse_args()
    print(f"{'':<8}{'ours':>9}{'NumPy':>9}{'C':>9}   ns per element, {SPEED_COUNT} float32 on one thread")
    for function in arguments.functions:
        ours, numpy, c = speed(function)
        rest = "" if c is None else f"{c:>9.2f}   {c / ours:.1f} times"
        print(f"{function:<8}{ours:>9.2f}{numpy:>9.2f}{rest}", flush=True)


if __name__ == "__main__":
    main()
