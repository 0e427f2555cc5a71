"""`prefetch`: fetch the data of a later iteration of a loop."""

from __future__ import annotations

from tensorc_dsl.ir.annotations import PREFETCH
from tensorc_dsl.ir.program import LoopKind, Program, blocks_in
from tensorc_dsl.schedule.motion import read_indices
from tensorc_dsl.schedule.nests import NO_BUFFER, NO_LOOP, the_buffer, the_loop, with_annotations
from tensorc_dsl.schedule.step import BufferRef, LoopRef, Rewrite, primitive, refusal


@refusal(
    "E0395",
    "{distance} is no number of iterations to prefetch ahead",
    help="give 1 or more",
    at="distance",
)
def BAD_DISTANCE(*focus: str, distance: int) -> None: ...
@refusal(
    "E0396",
    "no block inside `{loop}` reads `{buffer}`",
    help="the buffers read there are: {reads}",
    at="buffer",
)
def NOT_READ_BELOW(*focus: str, loop: str, buffer: str, reads: str) -> None: ...
@refusal(
    "E0397",
    "`{loop}` is {kind}: none of its iterations comes `{distance}` later",
    help="prefetch in a serial loop",
    at="loop",
)
def NOT_IN_ORDER(*focus: str, loop: str, kind: str, distance: int) -> None: ...


@primitive(NO_LOOP, NO_BUFFER, BAD_DISTANCE, NOT_READ_BELOW, NOT_IN_ORDER)
def prefetch(program: Program, loop: LoopRef, buffer: BufferRef, *, distance: int = 1) -> Rewrite[None]:
    """Each iteration of the loop may prefetch the elements of the buffer that the one `distance` later reads.

    for i in e: s  ->  for i in e @("prefetch.B", distance): s

    The result does not depend on it. CPUs fetch the lines of caches, if they are known: a few at the beginning of an
    iteration, many in the loops inside, to the second cache. GPUs ignore it.
    In Halide: `prefetch`.  Cases: tests/primitives/prefetch.md
    """
    target, source = the_loop(program, loop)[1], the_buffer(program, buffer)
    name = target.var
    if distance < 1:
        raise BAD_DISTANCE(program, name, distance=distance)
    if target.kind not in (LoopKind.SERIAL, LoopKind.PIPELINED, LoopKind.UNROLLED):
        raise NOT_IN_ORDER(program, name, loop=name, kind=target.kind, distance=distance)
    below = blocks_in(target.body)
    if not any(read_indices(b, source.name) for b in below):
        reads = [x.name for x in (*program.params, *program.buffers) if any(read_indices(b, x.name) for b in below)]
        raise NOT_READ_BELOW(program, name, loop=name, buffer=source.name, reads=", ".join(reads) or "none")
    return Rewrite(with_annotations(program, target, {f"{PREFETCH}{source.name}": distance}), None)
