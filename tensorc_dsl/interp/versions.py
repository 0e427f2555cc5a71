"""Which version of a module, space or schedule it was: a digest of its words, without layout, comments and descriptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b

from tensorc_dsl.interp.space import Space
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.format import format_item

Versions = Mapping[str, str]
"""Digests by kind and name: `module std.cpu.tile`, `space default`."""


def versions(space: Space, modules: Iterable[str] | None = None) -> Versions:
    """Of the space or schedule itself, and of its modules: those of these names, or all that it can reach."""
    names = space.modules if modules is None else modules
    definition = space.definition
    kind = "space" if isinstance(definition, tree.SpaceDef) else "schedule"
    found = {f"{kind} {definition.name}": _version(definition)}
    return found | {f"module {n}": _version(space.modules[n]) for n in names if n in space.modules}


def others(made: Versions, now: Versions) -> tuple[str, ...]:
    """What a schedule was made by in another version than there is now, sorted. What is not there at all says nothing: a
    schedule may have been made by another space."""
    return tuple(sorted(name for name, version in made.items() if now.get(name, version) != version))


def _version(item: tree.ModuleDef | tree.SpaceDef | tree.ScheduleDef) -> str:
    return blake2b(format_item(replace(item, doc="")).encode(), digest_size=16).hexdigest()
