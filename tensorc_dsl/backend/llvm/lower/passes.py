"""The passes of CPUs: the common ones, then vectors, unrolling and registers."""

from __future__ import annotations

from tensorc_dsl.backend.llvm.lower.across import fold_across
from tensorc_dsl.backend.llvm.lower.choices import take_out_choices
from tensorc_dsl.backend.llvm.lower.registers import keep_in_registers, limit_unrolling, unroll_small
from tensorc_dsl.backend.llvm.lower.vectors import legalise_vectors
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import MAX_STEP, Annotation, For, Program, walk
from tensorc_dsl.lower.flat import Kernel
from tensorc_dsl.lower.instructions import bind_instructions, instructions
from tensorc_dsl.lower.lower import COMMON, lower
from tensorc_dsl.lower.passes import Pass, Unit

UNROLL_LIMIT = 4096
"""The largest `code_size` of one unrolled nest: larger code leaves the instruction cache and takes long to compile."""


def max_step(program: Program) -> int:
    """The largest `unroll.max_step` of a program; 0 if there is none."""
    found: list[Annotation] = list(program.annotations)
    for _, s in walk(program.body):
        if isinstance(s, For):
            found.extend(s.annotations)
    return max((int(v) for k, v in found if k == MAX_STEP and isinstance(v, int)), default=0)


def _unroll(u: Unit) -> Unit:
    step = max_step(u.whole)
    return replace(u, flat=unroll_small(u.loops, step)) if step else u


def _bind(u: Unit) -> Unit:
    return replace(u, flat=bind_instructions(u.loops, instructions(u.program)))


PASSES = (
    *COMMON,
    Pass("vectors", lambda u: replace(u, flat=legalise_vectors(u.loops)), "vectorized loops that cannot be are serial"),
    Pass(
        "choices",
        lambda u: replace(u, flat=take_out_choices(u.loops)),
        "choices that all lanes of a row share are made before it",
    ),
    Pass("across", lambda u: replace(u, flat=fold_across(u.loops)), "partial results are combined across lanes"),
    Pass("unroll", _unroll, "short loops are unrolled, as `unroll.max_step` says"),
    Pass("registers", lambda u: replace(u, flat=keep_in_registers(u.loops)), "small buffers become registers"),
    Pass(
        "limit", lambda u: replace(u, flat=limit_unrolling(u.loops, UNROLL_LIMIT)), "too long unrolled loops are serial"
    ),
    Pass("instructions", _bind, "tensorized loops become instructions"),
)


def lower_cpu(program: Program) -> Kernel:
    """The kernel of a scheduled program, for any CPU. Raises LowerError as `lower` does."""
    return lower(program, PASSES)
