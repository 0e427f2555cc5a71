"""What a pipelined loop says of its statements: annotations that `software_pipeline` and `specialize` write.

They are part of the loop's meaning, so they print, parse and are verified with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorc_dsl.ir.program import For

STAGES = "pipeline.stages"
ORDER = "pipeline.order"
ASYNC = "pipeline.asynchronous"
ROLES = "specialize.roles"


def written_out(values: Iterable[int]) -> str:
    """As the annotation holds them: "0, 0, 1"."""
    return ", ".join(map(str, values))


def read_back(loop: For, key: str) -> tuple[int, ...] | None:
    """The numbers of one of the annotations; None when it is not there or is not a list of numbers."""
    text = dict(loop.annotations).get(key)
    if not isinstance(text, str):
        return None
    try:
        return tuple(int(x) for x in text.split(","))
    except ValueError:
        return None


def roles(loop: For) -> tuple[str, ...]:
    """The role of each statement of a loop that `specialize` was said of; none of any other."""
    text = dict(loop.annotations).get(ROLES)
    return tuple(text.split(", ")) if isinstance(text, str) else ()


def pipeline(loop: For) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Stage and place in the order of each statement; None unless there is one of each per statement."""
    stages, order = read_back(loop, STAGES), read_back(loop, ORDER)
    count = len(loop.body)
    if stages is None or order is None or len(stages) != count or sorted(order) != list(range(count)):
        return None
    return (stages, order) if min(stages) == 0 else None
