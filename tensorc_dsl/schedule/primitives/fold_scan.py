"""`fold_scan`: keep the last steps of a scan, in the places of those before."""

from __future__ import annotations

from tensorc_dsl.ir.expr import constant, free_vars
from tensorc_dsl.ir.program import IterKind, Program
from tensorc_dsl.proof.sets.dependence import keeps_places
from tensorc_dsl.schedule.motion import is_param, is_scan, own_buffer
from tensorc_dsl.schedule.nests import NO_BLOCK, dimension_modulo, the_block
from tensorc_dsl.schedule.step import BlockRef, Rewrite, primitive, refusal


@refusal(
    "E0649",
    "`{block}` cannot keep {steps} steps only: {reason}",
    help="a scan that is no output keeps as many steps as are read, that of the reader among them",
    at="block",
)
def NOT_FOLDED(*focus: str, block: str, steps: int, reason: str) -> None: ...


@primitive(NO_BLOCK, NOT_FOLDED)
def fold_scan(program: Program, block: BlockRef, steps: int = 2) -> Rewrite[None]:
    """The buffer of a scan holds `steps` of its steps: each new one takes the place of the oldest.

    for t in 9, i: S[t, i] = A[i] if t < 1 else S[t - 1, i + 1]     ->    … S[t % 2, i] = … S[(t - 1) % 2, i + 1]
    for i: B[i] = S[8, i]                                                 … B[i] = S[0, i]

    It is accepted if it is proved that nothing reads a step after another one took its place. Later steps keep that order.
    In Halide: `fold_storage`; in C two arrays that change places.  Cases: tests/primitives/fold_scan.md
    """
    _, b = the_block(program, block)

    def refuse(reason: str) -> Exception:
        return NOT_FOLDED(program, b.name, block=b.name, steps=steps, reason=reason)

    name = own_buffer(b)
    if not is_scan(b) or name is None:
        raise refuse("it is no scan with a buffer of its own")
    if is_param(program, name):
        raise refuse(f"the caller gets all of `{name}`")
    counts = {it.name for it in b.iters if it.kind is IterKind.SCAN}
    axes = [d for d, i in enumerate(b.body[0].indices) if free_vars(i) & counts]
    buffer = program.buffer(name)
    if len(axes) != 1 or len(counts) != 1:
        raise refuse(f"not just one subscript of `{name}` counts its steps")
    whole = constant(buffer.shape[axes[0]])
    if steps < 1 or (whole is not None and steps >= whole):
        raise refuse("that is none of them" if steps < 1 else "it has no more")
    if not keeps_places(program, buffer, axes[0], steps):
        raise refuse("it is not proved that none of them is read after a new one took its place")
    return Rewrite(dimension_modulo(program, buffer, axes[0], steps), None)
