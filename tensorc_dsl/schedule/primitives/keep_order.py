"""`keep_order`: from here on, no step changes the order in which sums are rounded."""

from __future__ import annotations

from tensorc_dsl.ir.program import IN_ORDER, Program
from tensorc_dsl.schedule.nests import with_annotations
from tensorc_dsl.schedule.step import Rewrite, primitive, refusal


@refusal(
    "E0347",
    "the program has no order to keep: {reason}",
    help="call `keep_order` before the step that leaves the order open",
)
def NO_ORDER(*focus: str, reason: str) -> None: ...


@primitive(NO_ORDER)
def keep_order(program: Program) -> Rewrite[None]:
    """Every later step keeps the bits of the results, or is refused; nothing else changes.

    keep_order(); rfactor(k1)  ->  refused: the sum would be rounded in another order

    A schedule that begins with it gives the bits of the compute's own order: each element combines the same values in the
    same order, with the same functions, fused with products where they were. `min`, `max` and sums of whole numbers
    round nothing, and may run in any order. Lowering keeps to it as well. Bits are those of one machine; which of two zeros
    `min` and `max` return is left open, and so are the bits of a NaN.
    In Halide: `strict_float`.  Cases: tests/primitives/keep_order.md
    """
    # The validator loads isl and NumPy, which a check of a file does without.
    from tensorc_dsl.proof.equivalence.bits import open_order

    if (reason := open_order(program)) is not None:
        raise NO_ORDER(program, reason=reason)
    return Rewrite(with_annotations(program, program, {IN_ORDER: True}), None)
