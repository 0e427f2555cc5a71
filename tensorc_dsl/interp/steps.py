"""A step as it was written: finds the argument that a refusal is about, and the draws in the arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tensorc_dsl.base.source import Span
from tensorc_dsl.interp.arguments import argument_spans
from tensorc_dsl.interp.values import Value, bare, draws_of
from tensorc_dsl.schedule.refs import BlockRef, BufferRef, LoopRef
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.syntax import tree


@dataclass(frozen=True, slots=True)
class Step:
    """A call of a primitive, a query or a draw with the values of its arguments."""

    call: tree.CallExpr
    signature: inspect.Signature
    args: Sequence[Value]
    kwargs: Mapping[str, Value]

    def culprit(self, refusal: ScheduleRefusal) -> Span:
        """The place of the argument at fault; that of the call if the refusal is not about an argument."""
        at = refusal.refusal.at
        own = argument_spans(self.signature, self.call).get(at)
        name = refusal.facts.get(at)
        named = [span for ref, span in self._refs() if ref.name == name]
        if named and own not in named:
            return named[-1]
        return own or self.call.span

    def _refs(self) -> Iterator[tuple[LoopRef | BlockRef | BufferRef, Span]]:
        written = list(zip(self.args, self.call.args, strict=True))
        written += [(self.kwargs[key], a) for key, a in self.call.kwargs]
        while written:
            value, at = written.pop(0)
            match bare(value):
                case LoopRef() | BlockRef() | BufferRef() as ref:
                    yield ref, at.span
                case tuple() as items:
                    # Elements of a list literal have places of their own.
                    places = at.items if isinstance(at, tree.ListExpr) else (at,) * len(items)
                    written[:0] = zip(items, places, strict=True)
                case _:
                    pass

    def draws(self) -> frozenset[str]:
        """The names of the draws that the arguments depend on."""
        return draws_of(*self.args, *self.kwargs.values())
