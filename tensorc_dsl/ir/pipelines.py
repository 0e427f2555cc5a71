"""Reads and writes the annotations of a pipelined loop, which `software_pipeline` and `specialize` make.

They are part of the loop's meaning, so they are printed, parsed and verified with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorc_dsl.ir.program import For

STAGES = "pipeline.stages"
ORDER = "pipeline.order"
ASYNC = "pipeline.asynchronous"
ROLES = "specialize.roles"
REGISTERS = "specialize.registers"


def written_out(values: Iterable[int]) -> str:
    """The numbers as the annotation spells them: "0, 0, 1"."""
    return ", ".join(map(str, values))


def read_back(loop: For, key: str) -> tuple[int, ...] | None:
    """The numbers of the annotation with that key; None if it is missing or not a list of numbers."""
    text = dict(loop.annotations).get(key)
    if not isinstance(text, str):
        return None
    try:
        return tuple(int(x) for x in text.split(","))
    except ValueError:
        return None


def roles(loop: For) -> tuple[str, ...]:
    """The role of each statement of a specialized loop; empty for other loops."""
    text = dict(loop.annotations).get(ROLES)
    return tuple(text.split(", ")) if isinstance(text, str) else ()


def pipeline(loop: For) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The stage and the position in the order of each statement; None unless both have one number per statement."""
    stages, order = read_back(loop, STAGES), read_back(loop, ORDER)
    count = len(loop.body)
    if stages is None or order is None or len(stages) != count or sorted(order) != list(range(count)):
        return None
    return (stages, order) if min(stages) == 0 else None
