"""Measures the speed and the errors of the maths functions of kernels, over all float32 if wanted.

    python -m bench.maths                                   ns per element, beside NumPy and the C library's function
    python -m bench.maths --exhaustive [--functions log …]  the largest error of all 2**32 arguments (a minute each)
    python -m bench.maths --exhaustive 61                   of every 61st

The error is in ulps, units in the last place of the exact result (`ulps`). `pow` has two arguments: `--exhaustive` draws
2**27 pairs or a part of them, from all float32 and from where the results are finite, seeded.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorc_dsl.backend.llvm.codegen.compile import Compiled, compile_kernel
from tensorc_dsl.backend.llvm.codegen.machine import Machine
from tensorc_dsl.backend.llvm.codegen.maths.call import CODES
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.backend.llvm.runtime.kernel import NativeKernel, load
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.machine.host import host_target
from tensorc_dsl.reference.maths import NUMERICS
from tensorc_dsl.source import Source

Array = NDArray[Any]


REFERENCE: Mapping[str, Callable[..., Array]] = {
    name: NUMERICS[name].value for name, c in CODES.items() if c.ulps is not None
}
"""The functions with errors, in NumPy and SciPy; in float64 their errors are far below a float32's last place."""

_LEAST_EXPONENT, _LARGEST_EXPONENT = (1023 - 126) << 52, (1023 + 127) << 52
"""Those of normal float32, as they stand in the bits of a float64."""

LANES = 16
BLOCK = 2**20
SPEED_COUNT = 4096
"""Elements of an array of 16 KB."""

_SPEED_RANGES = {"log": (0.01, 100.0), "rsqrt": (0.01, 100.0), "pow": (0.01, 10.0)}


def compiled(function: str, count: int, lanes: int, target: Target | None = None) -> Compiled:
    """`C[i] = function(A[i])`, or of A and B, on `count` float32 in vectors of `lanes`; one array for each. For this machine,
    or another."""
    names = ("A", "B")[: 2 if function == "pow" else 1]
    params = ", ".join(f"{name}: f32[{count}]" for name in (*names, "C"))
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


def ulps(got: Array, exact: Array) -> Array:
    """Errors in units in the last place that a float32 of the size of the exact result has; infinite where one is NaN and
    the other is not, or an infinity is wrong."""
    exponent = exact.view(np.int64) & 0x7FF0_0000_0000_0000
    unit = (np.clip(exponent, _LEAST_EXPONENT, _LARGEST_EXPONENT) - (23 << 52)).view(np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(got - exact) / unit
        strange = np.flatnonzero(~np.isfinite(error))
        g, e = got[strange], exact[strange]
        same = (g == e.astype(np.float32)) | np.isnan(g) & np.isnan(e)
    error[strange] = np.where(same, 0.0, np.inf)
    return error


def blocks(function: str, step: int, seed: int) -> Iterator[tuple[Array, ...]]:
    """Every `step`-th argument, `BLOCK` at a time; of `pow` many pairs."""
    if function != "pow":
        for start in range(0, 2**32, BLOCK * step):
            yield (np.arange(start, start + BLOCK * step, step).astype(np.uint32).view(np.float32),)
        return
    rng = np.random.default_rng(seed)
    for k in range(-(-128 // step)):
        x, y = rng.integers(0, 2**32, (2, BLOCK), dtype=np.uint64).astype(np.uint32).view(np.float32)
        if k % 2:
            x = np.where(np.isfinite(x) & (x != 0), x, np.float32(3))
            limit = np.log2(np.abs(x.astype(np.float64)))
            y = (rng.uniform(-150, 129, BLOCK) / np.where(limit == 0, 1, limit)).astype(np.float32)
            whole = np.abs(y) < 2**24
            y = np.where(whole & (rng.random(BLOCK) < 0.5), np.rint(y), y)
        yield x, y


def exhaustive(function: str, step: int, seed: int) -> tuple[float, tuple[float, ...]]:
    """The largest error in ulps, and an argument that has it."""
    kernel = load(compiled(function, BLOCK, LANES))
    out = np.empty(BLOCK, np.float32)
    worst, at = -1.0, ()
    for arguments in blocks(function, step, seed):
        kernel(*arguments, out)
        with np.errstate(all="ignore"):
            exact = REFERENCE[function](*(a.astype(np.float64) for a in arguments))
        error = ulps(out, exact)
        k = int(np.argmax(error))
        if error[k] > worst:
            worst, at = float(error[k]), tuple(float(a[k]) for a in arguments)
    return worst, at


def library_kernel(function: str, count: int) -> NativeKernel:
    """The same loop around calls of the C library's float function."""
    own = compiled(function, count, LANES)
    arguments = 2 if function == "pow" else 1
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
    arguments = (x, x[::-1].copy()) if function == "pow" else (x,)
    out = np.empty_like(x)
    unit = 1e9 / SPEED_COUNT
    ours = min(load(compiled(function, SPEED_COUNT, LANES)).time((*arguments, out), ROUNDS))
    theirs = best_call(lambda: REFERENCE[function](*arguments))
    if function in ("sigmoid", "rsqrt"):
        return ours * unit, theirs * unit, None
    c = min(library_kernel(function, SPEED_COUNT).time((*arguments, out), ROUNDS))
    return ours * unit, theirs * unit, c * unit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exhaustive", nargs="?", type=int, const=1, metavar="STEP")
    parser.add_argument("--functions", nargs="+", choices=list(REFERENCE), default=list(REFERENCE))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.exhaustive is not None:
        for function in arguments.functions:
            worst, at = exhaustive(function, arguments.exhaustive, arguments.seed)
            print(f"{function:<8} {worst:.3f} ulp at {', '.join(map(repr, at))}", flush=True)
        return
    print(f"{'':<8}{'ours':>9}{'NumPy':>9}{'C':>9}   ns per element, {SPEED_COUNT} float32 on one thread")
    for function in arguments.functions:
        ours, numpy, c = speed(function)
        rest = "" if c is None else f"{c:>9.2f}   {c / ours:.1f} times"
        print(f"{function:<8}{ours:>9.2f}{numpy:>9.2f}{rest}", flush=True)


if __name__ == "__main__":
    main()
