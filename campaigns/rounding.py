"""Random schedules, and whether their bits are as was said: `python -m campaigns.rounding --seed 1 --count 1000`.

A schedule is steps of random primitives on one of 20 computes, half of them behind `keep_order()`. Its kernel and that of the
order to keep, the compute's own one or that of the program at the first `keep_order()`, run on adversarial data: terms that
cancel, infinities, NaN, both zeros, subnormal and huge numbers. Where the bits are said to be the same, by the whole proof
and by each step, no element may differ. Where that is refused, some element should: the share of schedules for which none
does is told, by the reason of the refusal.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from campaigns.judge import isolated
from campaigns.random_programs import computes
from campaigns.random_steps import NothingToName, random_step
from tensorc_dsl.backend.once import in_order_if_lowered_so
from tensorc_dsl.backend.protocol import LoadedKernel, require_backend
from tensorc_dsl.base.frozen import replace
from tensorc_dsl.elaborate.compute import elaborate
from tensorc_dsl.ir.arrays import Array, narrow, stored_dtype
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.proof.equivalence.bits import in_order, may_return_either_zero, same_bits
from tensorc_dsl.proof.equivalence.validate import Unproved, Valid
from tensorc_dsl.reference.evaluate import shape_of
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.measure.check import other_bits

STEPS, TRIES = (1, 9), 5
"""Accepted steps of a schedule, and steps that are tried for each of them."""

INPUTS = 8
"""The inputs on which a schedule runs."""

SHAPES = [3, 5, 7, 8, 12, 16, 17]
"""Sizes: several terms in each sum, mostly no whole number of vectors."""

Sizes = Mapping[str, int]


def _plain(*names: str) -> Callable[[random.Random], Sizes]:
    return lambda rng: {n: rng.choice(SHAPES) for n in names}


def _conv(**fixed: int) -> Callable[[random.Random], Sizes]:
    def drawn(rng: random.Random) -> Sizes:
        sizes = {
            "N": 1,
            "H": 7,
            "W": 8,
            "CI": rng.choice([2, 3]),
            "CO": rng.choice([3, 8]),
            "KH": 3,
            "KW": rng.choice([1, 3]),
        }
        return sizes | fixed

    return drawn


COMPUTES: dict[str, tuple[str, Callable[[random.Random], Sizes]]] = {
    "matmul": ("matmul", _plain("M", "N", "K")),
    "dense": ("dense", _plain("M", "N", "K")),
    "quantized": ("quantized", _plain("M", "N", "K")),
    "biased": ("biased", _plain("M", "N", "K")),
    "capped": ("capped", _plain("M", "N")),
    "convolution": ("conv2d_nhwc", _conv()),
    "strided": ("conv2d_nhwc", _conv(stride=2)),
    "dilated": ("conv2d_nhwc", _conv(dilation=2)),
    "padded": ("conv2d_nhwc", _conv(pad=1)),
    "depthwise": ("conv2d_nhwc", _conv(CI=3, CO=3, groups=3)),
    "transposed": ("transposed", lambda _: {"H": 4, "W": 3, "CI": 3, "CO": 3, "KH": 3, "KW": 3, "stride": 2}),
    "softmax": ("softmax", _plain("M", "N")),
    "layer_norm": ("layer_norm", _plain("M", "N")),
    "attention": ("attention", _plain("M", "N", "D", "E")),
    "cumsum": ("cumsum", _plain("N", "M")),
    "log_sum_exp": ("log_sum_exp", _plain("M", "N")),
    "chain": ("chain", lambda rng: {**_plain("M", "N")(rng), "pad": 1}),
    "bags": ("bags", _plain("V", "D", "N", "L")),
    "swept": ("swept", _plain("N", "M")),
    "windows": ("windows", lambda rng: {"T": rng.choice([8, 11, 17]), "N": rng.choice([3, 5, 8])}),
}
"""By name: a compute of `schedules.tsched`, and sizes for it."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A scheduled program of a compute, with its steps as text. `ordered` has the order that it should keep."""

    name: str
    ordered: Program
    scheduled: Program
    steps: tuple[str, ...]


def drawn(seed: int, number: int) -> Schedule:
    """The schedule of that number: of each compute in turn."""
    rng = random.Random(f"{seed} {number}")
    name = list(COMPUTES)[number % len(COMPUTES)]
    compute, sizes = COMPUTES[name]
    file = computes()
    bound = sizes(rng)
    original = replace(elaborate(file.computes[compute], bound, compute, file.library), intrinsics=file.instructions)
    program = in_order(original) if rng.random() < 0.5 else original
    ordered = in_order(original)
    steps: list[str] = []
    wanted = rng.randint(*STEPS)
    for _ in range(wanted * TRIES):
        if len(steps) == wanted:
            break
        try:
            step = random_step(program, rng)
            after = step.apply(program).program
        except (NothingToName, ScheduleRefusal):
            continue
        if after is not program:
            if kept(after) and not kept(program):
                ordered = after
            program = after
            steps.append(str(step))
    return Schedule(name, ordered, program, tuple(steps))


def kept(program: Program) -> bool:
    """Whether each step has to keep the order of sums."""
    return ("in_order", True) in program.annotations


# Adversarial data.


def adversarial(program: Program, seed: int) -> dict[str, Array]:
    """Inputs that show an order. Twice, by turns: terms that cancel, products that are subnormal, and numbers of all sizes,
    some of them infinite, NaN or a zero. Then numbers near each other, of which no exponential is lost beside another one;
    and zeros among a few ones, whose products are negative, while a sum begins at the other zero. Inputs that are no floats
    are as the reference makes them.
    """
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, 7))))
    out = make_inputs(program, seed)
    for number, p in enumerate(program.inputs):
        if not p.dtype.is_float:
            continue
        shape = shape_of(p)
        sign = rng.choice([-1.0, 1.0], shape)
        match seed % INPUTS:
            case 6:
                values = sign * (0.5 + rng.random(shape))
            case 7:
                values = (1.0 if number % 2 else -1.0) * (rng.random(shape) < 0.1)
            case n if n % 3 == 0:  # a large number, and soon its opposite
                size = np.exp2(rng.integers(-4, 24, shape))
                values = sign * size * (1 + rng.random(shape))
            case n if n % 3 == 1:
                values = sign * np.exp2(rng.integers(-75, -60, shape)) * (1 + rng.random(shape))
            case _:
                values = sign * np.exp2(rng.integers(-20, 20, shape)) * (1 + rng.random(shape))
                rare = rng.random(shape)
                values = np.where(rare < 0.02, np.inf * sign, values)
                values = np.where((rare > 0.02) & (rare < 0.03), np.nan, values)
                values = np.where((rare > 0.03) & (rare < 0.1), 0.0 * sign, values)
        out[p.name] = narrow(values, p.dtype)
    return out


def outputs(kernel: LoadedKernel, program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """What a kernel makes of inputs, by name, as memory holds it."""
    out = {p.name: np.zeros(shape_of(p), stored_dtype(p.dtype)) for p in program.outputs}
    kernel(**{n: np.ascontiguousarray(a) for n, a in inputs.items()}, **out)
    return out


def kernel_of(program: Program) -> LoadedKernel:
    """The kernel of a scheduled program on one thread. Raises LowerError."""
    target = host_target(1)
    backend = require_backend(target.kind, program.name)
    return backend.load(backend.compile(backend.lower(program, target), target, 1).code, program, 1)


def difference(schedule: Schedule) -> str:
    """The first difference of the bits of both kernels, as text; "" if they agree on all inputs."""
    own, other = kernel_of(schedule.ordered), kernel_of(schedule.scheduled)
    zeros = may_return_either_zero(schedule.ordered) or may_return_either_zero(schedule.scheduled)
    for seed in range(INPUTS):
        inputs = adversarial(schedule.ordered, seed)
        a, b = (outputs(k, schedule.ordered, inputs) for k in (own, other))
        for p in schedule.ordered.outputs:
            if found := other_bits(p.name, b[p.name], a[p.name], p.dtype, zeros):
                return f"inputs {seed}: {found}"
    return ""


@dataclass(slots=True)
class Tally:
    """What was said, and what was so."""

    same: int = 0
    kept: int = 0
    differ: int = 0
    alike: Counter[str] = field(default_factory=Counter[str])
    """Refusals of schedules that do not differ, by reason."""
    skipped: int = 0
    wrong: list[str] = field(default_factory=list[str])


def judge(schedule: Schedule, number: int, tally: Tally) -> None:
    """Count one schedule."""
    found = same_bits(schedule.ordered, in_order_if_lowered_so(schedule.scheduled, host_target(1)))
    by_steps = kept(schedule.scheduled)
    try:
        told = isolated(lambda: difference(schedule))
    except LowerError:
        told = "LowerError"
    if "LowerError" in told:
        tally.skipped += 1
    elif "Traceback" in told or (told and (isinstance(found, Valid) or by_steps)):
        said = "each step was proved" if by_steps else "proved" if isinstance(found, Valid) else "not proved"
        steps = "\n".join(schedule.steps)
        program = format_program(schedule.scheduled)
        tally.wrong.append(f"{number}, {schedule.name}, {said}: {told}\n{steps}\n{program}")
    elif isinstance(found, Unproved) and not by_steps:
        if told:
            tally.differ += 1
        else:
            tally.alike[found.diagnostic.message.partition(": ")[2]] += 1
    else:
        tally.same += 1
        tally.kept += by_steps and isinstance(found, Unproved)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    arguments = parser.parse_args()
    tally = Tally()
    for number in range(arguments.count):
        try:
            judge(drawn(arguments.seed, number), number, tally)
        except Exception:
            tally.wrong.append(f"{number}: {traceback.format_exc()}")
    alike = tally.alike.total()
    print(f"{tally.same} schedules were said to keep the bits, {tally.kept} of them by their steps alone")
    print(f"{tally.differ + alike} were refused: {tally.differ} differ, and {alike} did not on {INPUTS} inputs")
    for reason, count in tally.alike.most_common():
        print(f"{count:>6} {reason}")
    print(f"{tally.skipped} have no kernel")
    print("\n".join(tally.wrong) or "nothing is wrong")
    sys.exit(bool(tally.wrong))


if __name__ == "__main__":
    main()
