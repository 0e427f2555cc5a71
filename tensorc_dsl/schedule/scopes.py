"""Where a buffer can live.

"global" is memory that all iterations share. A buffer of any other scope is private to an iteration of the innermost loop
around all its uses: "local" to a thread, "shared" and "shared.dyn" to the threads of a GPU block, and `family.part`
("mma.a", "wmma.accumulator") to the registers of a warp as an instruction wants them. On a CPU they are all local.
"""

from __future__ import annotations

import re

from tensorc_dsl.ir.program import Buffer, Program, fresh
from tensorc_dsl.schedule.refusal import Refusal

NO_SCOPE = Refusal(
    "E0622",
    'there is no scope "{scope}"',
    help='write "global", "local", "shared", "shared.dyn", or a fragment as "mma.a"',
    at="scope",
)

_PLAIN = frozenset(("global", "local", "shared"))
_PART = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")


def require_scope(program: Program, scope: str) -> None:
    """Refuse what is not the name of a scope."""
    if scope not in _PLAIN and not _PART.fullmatch(scope):
        raise NO_SCOPE(program, scope=scope)


def copy_name(buffer: Buffer, scope: str, used: set[str]) -> str:
    """What to call a copy of a buffer in a scope; the choice is added to `used`."""
    return fresh(f"{buffer.name}_{scope.replace('.', '_')}", used)
