"""Random schedule steps: for every primitive, arguments that are right in kind, whether or not they apply.

The parameters of a primitive are read from its signature. Each kind of argument (a loop, a number, a layout) has a
generator; if the kind says too little, as for a string, the value comes from the primitive's cases. The hints of
`random_hints` find values that are likely to be accepted in a program at hand. A parameter without any of these raises
`NoGenerator`, so that a new primitive cannot be left out.
"""

from __future__ import annotations

import inspect
import random
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass

from campaigns.random_hints import HINTS, LEADS, TOWARDS
from campaigns.random_pages import examples, ways
from campaigns.random_site import NothingToName, Site, any_block, any_buffer, layout, serial_loop
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.step import BlockRef, BufferRef, IndexMap, LoopRef, Rewrite, ScheduleRefusal

__all__ = ["NoGenerator", "NothingToName", "Step", "random_schedule", "random_step", "random_way"]


class NoGenerator(Exception):
    """A primitive has a parameter of a kind without a generator."""


@dataclass(frozen=True, slots=True)
class Step:
    """A call of a primitive."""

    name: str
    args: tuple[object, ...]
    kwargs: tuple[tuple[str, object], ...] = ()

    def __str__(self) -> str:
        return f"{self.name}{self.args}{dict(self.kwargs) or ''}"

    def apply(self, program: Program) -> Rewrite[typing.Any]:
        return apply(program, self.name, *self.args, **dict(self.kwargs))


def random_way(rng: random.Random, name: str | None = None) -> tuple[str, ...]:
    """The primitive `name`, or any, mostly behind those that make a place for it, where it has some."""
    name = rng.choice(sorted(PRIMITIVES)) if name is None else name
    leads = LEADS.get(name) or ways(name)
    return (*rng.choice(leads), name) if leads and rng.random() < 0.7 else (name,)


def random_step(program: Program, rng: random.Random, name: str | None = None, towards: str = "") -> Step:
    """Some call of the primitive `name`, or of any; on the way `towards` another. Raises NothingToName."""
    name = rng.choice(sorted(PRIMITIVES)) if name is None else name
    site = Site(program, rng, name)
    args: list[object] = []
    kwargs: list[tuple[str, object]] = []
    for p in PRIMITIVES[name].signature.parameters.values():
        own = TOWARDS.get(f"{towards}<{name}.{p.name}")
        if own is None and p.default is not inspect.Parameter.empty and rng.random() < 0.3:
            if p.kind is not inspect.Parameter.KEYWORD_ONLY:
                break  # those after it have defaults too
            continue
        value = own(site) if own is not None else _argument(site, p)
        site.chosen[p.name] = value
        if p.kind is inspect.Parameter.VAR_POSITIONAL:
            args.extend(value)
        elif p.kind is inspect.Parameter.KEYWORD_ONLY:
            kwargs.append((p.name, value))
        else:
            args.append(value)
    return Step(name, tuple(args), tuple(kwargs))


def random_schedule(program: Program, rng: random.Random, tries: int) -> tuple[Program, list[Step]]:
    """The program after so many tries, and the steps that were accepted."""
    steps: list[Step] = []
    for _ in range(tries):
        try:
            step = random_step(program, rng)
            program = step.apply(program).program
        except (NothingToName, ScheduleRefusal):
            continue
        steps.append(step)
    return program, steps


def _argument(site: Site, p: inspect.Parameter) -> typing.Any:
    hint = HINTS.get(f"{site.primitive}.{p.name}") or HINTS.get(p.name)
    if hint is not None:
        return hint(site)
    if p.kind is inspect.Parameter.VAR_POSITIONAL:
        single = p.replace(kind=inspect.Parameter.POSITIONAL_ONLY)
        return tuple(_argument(site, single) for _ in range(site.rng.choice([1, 2, 3])))
    shown = examples(site.primitive, p.name)
    members = typing.get_args(p.annotation) if isinstance(p.annotation, types.UnionType) else (p.annotation,)
    known = [KINDS[m] for m in members if m in KINDS]
    if shown and len(known) < len(members):
        known.append(lambda site: site.rng.choice(shown))
    if not known:
        raise NoGenerator(f"{site.primitive}: nothing makes `{p.name}`, {p.annotation}, and no case shows one")
    return site.rng.choice(known)(site)


KINDS: dict[object, Callable[[Site], typing.Any]] = {
    LoopRef: serial_loop,
    BlockRef: any_block,
    BufferRef: any_buffer,
    IndexMap: layout,
    bool: lambda site: site.rng.random() < 0.5,
    int: lambda site: site.rng.choice([0, 1, 1, 2, 2, 3, 4, -1]),
    type(None): lambda _: None,
}
