"""The scopes of buffers.

"global" is memory that all iterations share. A buffer of any other scope is private to an iteration of the innermost loop
around all its uses: "local" to a thread, "shared" and "shared.dyn" to the threads of a GPU block. "warp" is spread over the
lanes of a warp: each has the elements that it stores in registers, and others get them by shuffles. `family.part`
("mma.a", "wmma.accumulator") is spread in the layout of an instruction. On a CPU all of them are local
memory. On a GPU a statement at the top of a program is a kernel, and only global memory outlives it.
"""

from __future__ import annotations

import re

from tensorc_dsl.ir.program import Block, Buffer, Program, fresh, walk
from tensorc_dsl.proof.sets.accesses import touched
from tensorc_dsl.schedule.refusal import refusal


@refusal(
    "E0622",
    'there is no scope "{scope}"',
    help='write "global", "local", "warp", "shared", "shared.dyn", or a fragment as "mma.a"',
    at="scope",
)
def NO_SCOPE(*focus: str, scope: str) -> None: ...
@refusal(
    "E0641",
    '`{buffer}` is in "{scope}", which ends with a kernel; the blocks `{first}` and `{second}` use it in two kernels',
    help="move the one into the kernel of the other (`compute_at`), or leave `{buffer}` in global memory",
)
def OUTLIVES(*focus: str, buffer: str, scope: str, first: str, second: str) -> None: ...


_PLAIN = frozenset(("global", "local", "shared", "warp"))
_PART = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")


def require_scope(program: Program, scope: str) -> None:
    """Refuse a word that is not the name of a scope."""
    if scope not in _PLAIN and not _PART.fullmatch(scope):
        raise NO_SCOPE(program, scope=scope)


def copy_name(buffer: Buffer, scope: str, used: set[str]) -> str:
    """The name for a copy of a buffer in a scope; it is added to `used`."""
    return fresh(f"{buffer.name}_{scope.replace('.', '_')}", used)


def require_kernels_apart(program: Program) -> None:
    """Refuse a finished program for a GPU in which two kernels use a buffer that is not global.

    Intermediate programs may do so: a copy is first made and later moved to its readers.
    """
    users: dict[str, tuple[int, str]] = {}
    scopes = {b.name: b.scope for b in program.buffers if b.scope != "global"}
    for kernel, stmt in enumerate(program.body):
        for b in (s for _, s in walk((stmt,)) if isinstance(s, Block)):
            for name in sorted(touched(b) & scopes.keys()):
                place, first = users.setdefault(name, (kernel, b.name))
                if place != kernel:
                    facts = {"first": first, "second": b.name, "buffer": name, "scope": scopes[name]}
                    raise OUTLIVES(program, *dict.fromkeys((first, b.name, name)), **facts)
