"""Refuses a step after which a loop, a buffer or an expression is too large.

Kernels count iterations and bytes in 64 bits, and functions over expressions have limits of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorc_dsl.ir.dtypes import I64
from tensorc_dsl.ir.expr import Expr, constant, too_large
from tensorc_dsl.ir.numbers import limits
from tensorc_dsl.ir.program import ALIGN, OFFSET, Block, Buffer, For, Program, blocks, walk
from tensorc_dsl.proof.sets.simplify import bounds
from tensorc_dsl.schedule.refusal import refusal


@refusal(
    "E0687",
    "after `{step}` {what}, and kernels count to {most}",
    help="take smaller numbers",
)
def UNCOUNTED(*focus: str, step: str, what: str, most: int) -> None: ...


@refusal(
    "E0692",
    "after `{step}` an expression of `{block}` would be {found}",
    help="leave a stage in a buffer, with its block where it is or moved by `compute_at`; then others read its elements",
)
def TOO_LONG(*focus: str, step: str, block: str, found: str) -> None: ...


MOST = limits(I64)[1] // 2
"""Half of what 64 bits count: sums of two such numbers, as conditions compare, are in range."""


def refuse_uncounted(step: str, before: Program, after: Program) -> None:
    """Refuse a loop that is too long, or a buffer that is too large. Indices of kernels have 64 bits."""
    for _, s in walk(after.body):
        if isinstance(s, For) and _most(s.extent) > MOST:
            raise UNCOUNTED(before, step=step, what=f"`{s.var}` has {_most(s.extent)} iterations", most=MOST)
    known = {id(b) for b in before.buffers}
    for b in after.buffers:
        if id(b) not in known and (size := pitched(b, [_most(n) for n in b.shape]) * b.dtype.bytes) > MOST:
            raise UNCOUNTED(before, step=step, what=f"`{b.name}` has {size} bytes", most=MOST)


def refuse_long(step: str, before: Program, made: Iterable[Block]) -> None:
    """Refuse blocks with an expression that is too large, before anything else is asked about them."""
    for b in made:
        stored = (e for s in (*b.init, *b.body) for e in (*s.indices, s.value))
        for e in (*stored, *b.where, *(it.binding for it in b.iters)):
            if (found := too_large(e)) is not None:
                focus = [x.name for x in blocks(before) if x.name == b.name]
                raise TOO_LONG(before, *focus, step=step, block=b.name, found=found)


def _most(e: Expr) -> int:
    """The greatest value of an extent; 0 if none is known."""
    n = constant(e)
    return (bounds(e, {})[1] or 0) if n is None else n


def pitched(b: Buffer, sizes: Sequence[int]) -> int:
    """The elements of a box of these sizes, with the space between its rows from `storage_align`."""
    notes, inner = dict(b.annotations), 1
    for d, n in reversed(list(enumerate(sizes))):
        factor, offset = (int(notes.get(f"{key}.{d}", least)) for key, least in ((ALIGN, 1), (OFFSET, 0)))
        inner = n * (-(-(inner - offset) // factor) * factor + offset)
    return inner
