"""Random schedules of computes with several open sizes, of which not all occur together:
`python -m campaigns.random_shapes --seed 0 --count 100`.

A task has random ranges, from 0 on, and random conditions on its sizes. Its schedule is some random steps, mostly followed by
a division by sizes, with further steps in each case. One kernel runs at many of the sizes, in memory that ends at unreadable
pages: its results are those of the reference, and a call with sizes that do not occur is an error. Where the bits are
said to be those of the compute's own order, or a row to have the same bits whatever comes behind it, they are so.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from random import Random

import numpy as np

from bench.bound import run_both
from campaigns.judge import UNPROVED, isolated, proof
from campaigns.random_steps import random_schedule
from campaigns.rounding import adversarial, kernel_of, outputs
from tensorc_dsl.backend.llvm.codegen.compile import compile_kernel
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.backend.llvm.runtime.kernel import NativeKernel, load
from tensorc_dsl.backend.once import in_order_if_lowered_so
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import replace
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api import loads
from tensorc_dsl.ir.arrays import Array, stored_dtype, widen
from tensorc_dsl.ir.cases import Box, Range, common, divided, hull, narrowed, occurs, whole, without
from tensorc_dsl.ir.expr import Dim, Expr, rewrite_expr
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Case, Program
from tensorc_dsl.ir.sizes import Sizes, bind, broken_by
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.proof.equivalence.bits import in_order, may_return_either_zero, same_bits
from tensorc_dsl.proof.equivalence.rows import same_rows
from tensorc_dsl.proof.equivalence.validate import Valid
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.measure.check import Guarded, compare, other_bits, poison, read_only

ASKED = 12
"""At so many sizes a kernel runs."""

COMPUTES: dict[str, tuple[str, str]] = {
    "product": ("""
compute c(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] { C[i, j] = sum[k] A[i, k] * B[k, j] }""", "M"),
    "weights": ("""
compute c(A: f32[M, K], W: const f32[N, K], b: const f32[N]) -> C: f32[M, N] {
    let S[i, j] = sum[k] A[i, k] * W[j, k]
    C[i, j] = max(S[i, j] + b[j], 0)
}""", "M"),
    "behind": ("""
compute c(A: f32[M, D], W: const f32[N]) -> C: f32[M, D] where M <= N {
    let P[k in M] = W[k + N - M] * 2
    C[i, d] = A[i, d] + P[i]
}""", ""),
    "last": ("""
compute c(X: f32[N, D]) -> Y: f32[M, D] where M <= N { Y[i, d] = X[i + N - M, d] }""", ""),
    "softmax": ("""
compute c(X: f32[M, N]) -> Y: f32[M, N] {
    let m[i] = max[j] X[i, j]
    let e[i, j] = exp(X[i, j] - m[i])
    let s[i] = sum[j] e[i, j]
    Y[i, j] = e[i, j] / s[i]
}""", "M"),
    "windows": ("""
compute c(X: f32[M, N], F: f32[K]) -> Y: f32[M, N - K + 1] where K <= N {
    Y[i, j] = sum[k in K] X[i, j + k] * F[k]
}""", "M"),
    "square": ("""
compute c(A: f32[M, M], X: f32[M, N]) -> Y: f32[M, N] {
    let T[i] = sum[k] A[i, k]
    Y[i, j] = X[i, j] + A[i, i] * T[i]
}""", ""),
    "prefix": ("""
compute c(X: f32[N], Z: f32[M]) -> Y: f32[M] {
    let T[i in M] = sum[k in N] (X[k] * 2.0 if k <= i else 0.0)
    Y[i] = T[i] + Z[i]
}""", ""),
    "counts": ("""
compute c(A: i32[M, N], B: i32[N]) -> S: i32[M], L: i32[M] {
    let T[i, j] = A[i, j] * B[j]
    S[i] = sum[j] T[i, j]
    L[i] = max[j] T[i, j]
}""", "M"),
    "halves": ("""
compute c(A: f16[M, N], B: bf16[N]) -> S: f16[M], T: f32[M] {
    S[i] = sum[j] A[i, j]
    T[i] = sum[j] f32(A[i, j]) * f32(B[j])
}""", "M"),
    "running": ("""
compute c(A: f32[N, M]) -> B: f32[N, M] { B[i, j] = scan[i] init A[0, j] step B[i - 1, j] + A[i, j] }""", ""),
}  # fmt: skip
"""By name: a compute, and the size that counts the rows of its results, if one does."""

SAID = (
    "{a} <= {b}", "{a} < {b}", "{a} == {b}", "{a} == 2 * {b}", "{a} <= {b} + 1", "{a} + {b} <= {n}", "{a} % 2 == {b} % 2",
    "{a} != {n}", "{a} % 3 != 1", "{a} >= {b} or {a} % 3 == 1", "{a} - {b} <= 2", "{a} % {n} == 0", "3 * {a} >= {b}",
)  # fmt: skip
"""What a task says of its sizes."""


@dataclass(frozen=True, slots=True)
class Made:
    """The program of a task, a scheduled one, the steps as text, and the size that counts rows."""

    original: Program
    scheduled: Program
    steps: tuple[str, ...]
    rows: str


def task_text(rng: Random) -> tuple[str, str]:
    """A file with a task, and the size that counts rows."""
    compute, rows = COMPUTES[rng.choice(list(COMPUTES))]
    names = [n for n in "MNKD" if f"[{n}" in compute or f" {n}]" in compute]
    opened = rng.sample(names, rng.randint(min(2, len(names)), len(names)))
    sizes: list[str] = []
    for n in names:
        low = rng.choice([0, 1, 1, 1, 2, 3, 8])
        high = low + rng.choice([1, 3, 9, 9, 17, 25])
        sizes.append(f"{n}={low}..{high}" if n in opened else f"{n}={rng.choice([1, 2, 3, 5, 8, 16])}")
    said: list[str] = []
    for _ in range(rng.choice([0, 1, 1, 2])):
        a, b = rng.sample(names, 2)
        said.append(rng.choice(SAID).format(a=a, b=b, n=rng.randint(2, 12)))
    where = f" where {', '.join(said)}" if said else ""
    return f"{compute}\nschedule plain for c {{ }}\ntask t = c({', '.join(sizes)}){where} with plain\n", rows


def drawn(seed: int) -> Made:
    """The schedule of that seed. Raises TschedError where the sizes or conditions of its task are none."""
    rng = Random(f"shapes {seed}")
    text, rows = task_text(rng)
    original = loads(text, threads=1)["t"].program
    begun = in_order(original) if rng.random() < 0.2 else original
    program, steps = random_schedule(begun, rng, rng.choice([0, 3, 8]))
    told = [*map(str, steps)]
    program = parted(program, rng, told) if program.dims and rng.random() < 0.7 else _more(program, rng, told, 8)
    return Made(original, program, tuple(told), rows)


def _more(program: Program, rng: Random, told: list[str], tries: int) -> Program:
    made, steps = random_schedule(program, rng, tries)
    told += map(str, steps)
    return made


def parted(program: Program, rng: Random, told: list[str], deep: int = 1) -> Program:
    """The program divided by random boxes of some sizes, with random steps in each case, as `select` divides it."""
    names = [str(d.name) for d in rng.sample(program.dims, min(len(program.dims), rng.choice([1, 1, 2])))]
    rest = [whole(program.dims, names)]
    cases: list[Case] = []
    boxes: list[Box] = [tuple(_range(program, n, rng) for n in names) for _ in range(rng.randint(1, 3))]
    for box in (*boxes, tuple((0, None) for _ in names)):
        left = [x for b in rest if (x := common(b, box)) is not None and occurs(program.dims, names, x)]
        if not left:
            continue
        rest, sizes = without(rest, box), hull(left)
        told.append(f"{', '.join(names)} in {sizes}:")
        inside = narrowed(program, names, sizes)
        inner = deep and inside.dims and rng.random() < 0.2
        made = parted(inside, rng, told, deep - 1) if inner else _more(inside, rng, told, rng.choice([0, 4, 10]))
        cases.append(Case(sizes, made))
    return divided(program, names, cases)


def _range(program: Program, name: str, rng: Random) -> Range:
    (d,) = (d for d in program.dims if d.name == name)
    high = d.low + 9 if d.high is None else d.high
    low, most = sorted(rng.choices(range(d.low, high + 1), k=2))
    return rng.choice([(low, low), (low, most), (low, most), (d.low, most), (low, None), (0, None)])


def sizes_of(program: Program, rng: Random) -> tuple[list[Sizes], list[Sizes]]:
    """Some sizes that occur, the ends of all ranges among them, and some that do not, by little."""
    ranges = [range(d.low, (d.high or d.low) + 1) for d in program.dims]
    names = [str(d.name) for d in program.dims]
    every: list[Sizes] = [dict(zip(names, x, strict=True)) for x in product(*ranges)]
    inside = [x for x in every if broken_by(program.dims, x) is None]
    ends = [f(inside, key=lambda x: (x[n], *x.values())) for n in names for f in (min, max)] if inside else []
    some = [*ends, *rng.sample(inside, min(len(inside), max(0, ASKED - len(ends))))]
    outside = [x for x in every if broken_by(program.dims, x) is not None]
    beyond: list[Sizes] = []
    for d in program.dims:
        base = rng.choice(inside)
        beyond += [{**base, str(d.name): n} for n in (d.low - 1, (d.high or d.low) + 1) if n >= 0]
    few = rng.sample(outside, min(3, len(outside)))
    return [x for n, x in enumerate(some) if x not in some[:n]], [*few, *beyond]


def fault(made: Made, seed: int) -> str:
    """What is wrong with the kernel; "" if nothing is. Raises LowerError."""
    rng = Random(f"sizes {seed}")
    inside, outside = sizes_of(made.original, rng)
    kernel = load(compile_kernel(lower_cpu(made.scheduled), host_target(2), 2))
    for sizes in inside:
        if found := _wrong(kernel, bind(made.original, sizes), seed):
            return f"at {dict(sizes)}: {found}"
    for sizes in outside:
        if _taken(kernel, made.original, sizes):
            return f"{dict(sizes)} is no error"
    settled = in_order_if_lowered_so(made.scheduled, host_target(1))
    if isinstance(same_bits(in_order(made.original), settled), Valid):
        own, other = kernel_of(in_order(made.original)), kernel_of(made.scheduled)
        for sizes in inside:
            bound = bind(made.original, sizes)
            zeros = may_return_either_zero(bound)
            inputs = adversarial(bound, seed)
            a, b = (outputs(k, bound, inputs) for k in (own, other))
            for p in bound.outputs:
                if found := other_bits(p.name, b[p.name], a[p.name], p.dtype, zeros):
                    return f"at {dict(sizes)} the bits differ: {found}"
    return _rows(made, inside, seed)


def _wrong(kernel: NativeKernel, bound: Program, seed: int) -> str:
    """What is wrong with the results at some sizes."""
    inputs = make_inputs(bound, seed)
    reference, allowed = bounded(bound, inputs)
    out = {p.name: Guarded(shape_of(p), stored_dtype(p.dtype)) for p in bound.outputs}
    for g in out.values():
        poison(g.array)
    ins = {n: read_only(np.asarray(a, order="C")) for n, a in inputs.items()}
    if differs := run_both(kernel, ins | {n: g.array for n, g in out.items()}):
        return differs
    for name, g in out.items():
        if beside := g.trespassed():
            return f"{name}: written {beside} it"
        if told := compare(name, widen(g.array, bound.buffer(name).dtype), reference[name], allowed[name]).fault:
            return told
    return ""


def _taken(kernel: NativeKernel, original: Program, sizes: Sizes) -> bool:
    """Whether a call with sizes that do not occur is no error."""
    free = tuple(Dim(d.name) for d in original.dims)
    plain = replace(
        original,
        params=tuple(replace(p, shape=tuple(_free(e, free) for e in p.shape)) for p in original.params),
        buffers=(),
        body=(),
        dims=free,
    )
    try:
        shapes = {p.name: shape_of(p) for p in bind(plain, sizes).params}
    except ValueError:
        return False  # no arrays have such a shape
    if any(n < 0 for s in shapes.values() for n in s):
        return False
    arrays = {p.name: np.zeros(shapes[p.name], stored_dtype(p.dtype)) for p in original.params}
    for _ in range(2):  # the first call may make a faster one for those behind it
        with suppress(ValueError, TschedError):
            kernel(*arrays.values())
            return True
    return False


def _free(e: Expr, dims: Sequence[Dim]) -> Expr:
    by_name = {d.name: d for d in dims}
    return rewrite_expr(e, lambda x: by_name[x.name] if isinstance(x, Dim) else x)


def _rows(made: Made, inside: Sequence[Sizes], seed: int) -> str:
    """A difference between rows that are said to have the same bits whatever comes behind them."""
    if not any(d.name == made.rows for d in made.original.dims):
        return ""
    settled = in_order_if_lowered_so(made.scheduled, host_target(1))
    if not isinstance(same_rows(settled, settled, made.rows), Valid):
        return ""
    kernel = kernel_of(made.scheduled)
    for sizes, fewer in product(inside, inside):
        if {**sizes, made.rows: 0} != {**fewer, made.rows: 0} or fewer[made.rows] >= sizes[made.rows]:
            continue
        long, short = bind(made.original, sizes), bind(made.original, fewer)
        inputs = adversarial(long, seed)
        part = {p.name: np.ascontiguousarray(inputs[p.name][tuple(map(slice, shape_of(p)))]) for p in short.inputs}
        a, b = outputs(kernel, long, inputs), outputs(kernel, short, part)
        for p in short.outputs:
            first: Array = np.ascontiguousarray(a[p.name][tuple(map(slice, shape_of(p)))])
            if found := other_bits(p.name, b[p.name], first, p.dtype, may_return_either_zero(short)):
                return f"rows at {dict(fewer)} differ from those at {dict(sizes)}: {found}"
    return ""


def judge(seed: int, tally: Counter[str]) -> str:
    """What is wrong with the schedule of a seed, as text; "" if nothing is."""
    try:
        made = drawn(seed)
    except TschedError as e:
        tally[f"no task: {e.diagnostics[0].code}"] += 1
        return ""
    text = format_program(made.scheduled)
    found = ""
    if parse_program(Source("printed", text)) != made.scheduled:
        found = "it reads back as something else"
    else:
        told = proof(made.original, made.scheduled)
        tally["unproved" if told.startswith(UNPROVED) else "proved"] += 1
        found = told if told and not told.startswith(UNPROVED) else isolated(lambda: _lowered(made, seed))
    if found == NO_KERNEL:
        tally["no kernel"] += 1
        return ""
    tally["divided"] += bool(made.scheduled.cases)
    if not found:
        return ""
    return f"seed {seed}: {found}\n{format_program(made.original)}" + "\n".join(made.steps) + f"\n{text}"


NO_KERNEL = "no kernel"


def _lowered(made: Made, seed: int) -> str:
    try:
        return fault(made, seed)
    except LowerError:
        return NO_KERNEL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    arguments = parser.parse_args()
    tally: Counter[str] = Counter()
    wrong: list[str] = []
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        try:
            found = judge(seed, tally)
        except Exception:
            found = f"seed {seed}: {traceback.format_exc()}"
        if found:
            wrong.append(found)
            print(found, flush=True)
    for what, count in tally.most_common():
        print(f"{count:>6} {what}")
    print(f"{len(wrong)} of {arguments.count} schedules are wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
