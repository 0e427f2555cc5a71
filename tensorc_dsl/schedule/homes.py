"""Keeps what buffers hold that are private to an iteration: a step that moves their uses together must not make them new
more often."""

from __future__ import annotations

from tensorc_dsl.ir.program import For, Program, walk
from tensorc_dsl.proof.sets.accesses import home, private_loops
from tensorc_dsl.proof.sets.private import is_private
from tensorc_dsl.schedule.refusal import refusal


@refusal(
    "E0688",
    "after `{step}` all uses of `{buffer}` are inside `{loop}`, and an iteration may read what an earlier one left in it",
    help='give `{buffer}` the scope "global" first: `set_scope({buffer}, "global")`',
)
def EMPTIED(*focus: str, step: str, buffer: str, loop: str) -> None: ...


def refuse_emptied(step: str, before: Program, after: Program) -> None:
    """Refuse a step after which a buffer is new in each iteration of a loop that was inside of its home, unless each
    iteration reads only what it has written. Steps that make a buffer private, or a new one, have proved it.
    """
    scopes = {b.name: b.scope for b in before.buffers if b.scope != "global"}
    if not scopes:
        return
    old, new = private_loops(before), private_loops(after)
    known = {s.var for _, s in walk(before.body) if isinstance(s, For)}
    for buffer in after.buffers:
        name = buffer.name
        around = home(after, buffer)
        if around is None or scopes.get(name) != buffer.scope or not (new[name] - old[name]) & known:
            continue
        inside = around[-1].var
        if not is_private(after, name, inside):
            raise EMPTIED(before, name, inside, step=step, buffer=name, loop=inside)
