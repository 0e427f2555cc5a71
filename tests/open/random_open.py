"""Random computes with open dimensions, random schedules of them, and a comparison of one kernel with the reference."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np

from bench.bound import run_both
from campaigns.random_steps import random_schedule
from tensorc_dsl.backend.llvm.codegen.compile import Compiled
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.backend.llvm.runtime.kernel import NativeKernel, load
from tensorc_dsl.elaborate.bindings import Bound, OpenRange
from tensorc_dsl.ir.arrays import Array, stored_dtype, widen
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.sizes import Sizes, bind
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.lower.flat import format_kernel
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.reference.tolerance import bounded
from tensorc_dsl.reference.work import flops
from tensorc_dsl.tuning.measure.check import Guarded, compare, poison, read_only
from tests.codegen.native import compiled
from tests.compute.random_computes import random_compute
from tests.compute.random_features import random_features
from tests.compute.texts import build, made, std


@dataclass(frozen=True, slots=True)
class Case:
    """A compute; the dimensions that may be open, each with a few sizes that it has where it is not."""

    compute: str
    dims: dict[str, tuple[int, ...]]
    fixed: dict[str, Bound]


INTERPRETED = 20_000
"""Operations of a program that the interpreter runs, which needs a microsecond or two for each."""

MLP = """
compute layer(X: f32[M, K], W: f32[K, N]; floor: float = 0) -> Y: f32[M, N] {
    let Z[i, j] = sum[k] X[i, k] * W[k, j]
    Y[i, j] = max(Z[i, j], floor)
}
compute mlp(X: f32[M, K], A: f32[K, H], B: f32[H, N]) -> Y: f32[M, N], Best: i64[M] {
    let R = layer(X, A)
    Y = layer(R, B, floor = 0.1)
    Best[i] = argmax[j] Y[i, j] * 0
}
"""

CASES: dict[str, Case] = {
    "matmul": Case("matmul", {"M": (1, 3, 16), "N": (1, 5, 32), "K": (1, 7)}, {}),
    "softmax": Case("softmax", {"M": (1, 5), "N": (3, 17)}, {}),
    "conv": Case("conv2d", {"N": (1, 2), "H": (4, 7), "W": (5, 6), "CI": (1, 2), "CO": (1, 9)}, {"KH": 3, "KW": 3, "pad": 1}),
    "strided": Case("conv2d", {"N": (1, 2), "H": (4, 7), "W": (5, 6)}, {"CI": 2, "CO": 4, "KH": 3, "KW": 2, "stride": 2}),
    "cumsum": Case("cumsum", {"N": (1, 6), "M": (1, 5, 20)}, {}),
    "argmax": Case("argmax", {"M": (1, 4), "N": (1, 9)}, {}),
    "mlp": Case(MLP, {"M": (1, 4), "K": (3, 8), "H": (4, 5), "N": (2, 9)}, {}),
}  # fmt: skip


def open_program(name: str, rng: random.Random) -> Program:
    """One of the computes with one, two or three of its dimensions open."""
    case = CASES[name]
    some = rng.sample(list(case.dims), min(len(case.dims), rng.choice([1, 1, 2, 3])))
    bound: dict[str, Bound] = {n: rng.choice(sizes) for n, sizes in case.dims.items()}
    least = 4 if case.compute == "conv2d" else 1
    for n in some:
        low = rng.choice([least, least, least + 1, 8])
        bound[n] = OpenRange(low, low + rng.choice([0, 5, 13, 40]) if n not in ("H", "W") else low + 9)
    if case.compute == MLP:
        return build(MLP, **bound)
    return made(std(case.compute), None, **bound, **case.fixed)


def random_sizes(p: Program, rng: random.Random, count: int) -> list[dict[str, int]]:
    """The least sizes, the largest, and some between."""
    highs = {d.name: d.low if d.high is None else d.high for d in p.dims}
    out = [{d.name: d.low for d in p.dims}, highs]
    for _ in range(count):
        out.append(
            {d.name: min(highs[d.name], max(d.low, rng.choice([1, 2, 3, 5, 7, 11, 13, 16, 17]))) for d in p.dims}
        )
    return [x for n, x in enumerate(out) if x not in out[:n]]


def run_guarded(kernel: NativeKernel, c: Compiled, program: Program, inputs: dict[str, Array]) -> dict[str, Array]:
    """The outputs; arrays end at unreadable pages, outputs start poisoned."""
    guards = {q.name: Guarded(shape_of(program.buffer(q.name)), stored_dtype(q.dtype)) for q in c.params if q.output}
    for g in guards.values():
        poison(g.array)
    ins = {q.name: read_only(np.asarray(inputs[q.name], order="C")) for q in c.params if not q.output}
    assert run_both(kernel, ins | {name: g.array for name, g in guards.items()}) == ""
    for name, g in guards.items():
        assert g.trespassed() is None, f"{name}: written {g.trespassed()} it"
    return {name: g.array for name, g in guards.items()}


def check_everywhere(
    original: Program, scheduled: Program, sizes: list[dict[str, int]], seed: int, orders: bool
) -> None:
    """One kernel gives at all sizes what the reference of the unscheduled program does, and so does the interpreter."""
    verify(scheduled)
    c = compiled(scheduled)
    kernel = load(c)
    for some in sizes:
        compare_at(original, scheduled, some, kernel, c, seed, orders)


def compare_at(
    original: Program, scheduled: Program, sizes: Sizes, kernel: NativeKernel, c: Compiled, seed: int, orders: bool
) -> None:
    bound = bind(original, sizes)
    inputs = make_inputs(bound, seed)
    reference, allowed = bounded(bound, inputs)
    results = {"compiled": run_guarded(kernel, c, bound, inputs)}
    if orders and flops(bound) < INTERPRETED:
        for order in ("forward", "reversed", "shuffled"):
            results[order] = interpret(bind(scheduled, sizes), inputs, order)
    for name, want in reference.items():
        t = bound.buffer(name).dtype
        for how, got in results.items():
            fault = compare(name, widen(got[name], t), want, allowed[name]).fault
            assert not fault, f"{how} at {dict(sizes)}: {fault}"


def open_compute(rng: random.Random, seed: int) -> Program:
    """A random compute of which one, two or three sizes are open."""
    text, sizes = (random_features if seed % 2 else random_compute)(seed)
    bound: dict[str, Bound] = dict(sizes)
    least = {"N": 4} if seed % 2 else {}
    for name in rng.sample(["M", "N", "K"], rng.choice([1, 1, 2, 3])):
        low = max(rng.choice([1, 1, 3, 8]), least.get(name, 1))
        bound[name] = OpenRange(low, low + rng.choice([0, 3, 9]))
    return build(text, **bound)


def check(name: str, seed: int, steps: int = 14) -> list[str]:
    """A random schedule of a random opening; the steps that it made."""
    rng = random.Random(f"{name} {seed}")
    return check_steps(open_program(name, rng), rng, seed, steps)


def check_steps(original: Program, rng: random.Random, seed: int, steps: int) -> list[str]:
    program, history = random_schedule(original, rng, steps)
    if rng.random() < 0.3:
        program = replace(program, annotations=(("unroll.max_step", rng.choice([16, 64])),))
    try:
        check_everywhere(original, program, random_sizes(original, rng, 3), seed, rng.random() < 0.5)
    except AssertionError as e:
        e.add_note("\n".join([*map(str, history), format_program(program), format_kernel(lower_cpu(program))]))
        raise
    return [*map(str, history)]
