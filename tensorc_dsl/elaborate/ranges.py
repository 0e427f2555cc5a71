"""The ranges of indices: written in the text, taken from the output's shape, or inferred from uses as subscripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tensorc_dsl.base.diagnostic import Note
from tensorc_dsl.base.source import Span
from tensorc_dsl.elaborate.bindings import Environment, extent, names_in
from tensorc_dsl.elaborate.names import parts
from tensorc_dsl.elaborate.problems import (
    NO_RANGE,
    PART_OF_STAGE,
    RANGE_OF_INDEX,
    RANGES_DIFFER,
    RANK,
    TAKEN,
    Invalid,
    each,
)
from tensorc_dsl.ir.expr import Expr
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Buffer
from tensorc_dsl.syntax import tree


@dataclass(frozen=True, slots=True)
class Use:
    """A use of an index as a whole subscript. `guarded`: inside a branch of a conditional."""

    extent: Expr
    span: Span
    where: str
    guarded: bool


@dataclass(slots=True)
class Ranges:
    """The extent of each index of a stage, by the node that introduces it."""

    _extents: dict[int, Expr] = field(default_factory=dict[int, Expr])

    def of(self, spec: tree.IndexSpec) -> Expr:
        return self._extents[id(spec)]

    def set(self, spec: tree.IndexSpec, extent: Expr) -> None:
        self._extents[id(spec)] = extent


def infer_ranges(
    stage: tree.Stage, shape: tuple[Expr, ...] | None, buffers: Mapping[str, Buffer], env: Environment
) -> Ranges:
    """The range of every index of the stage, those of its reductions included. Raises Invalid.

    A written range holds. An index of an output has the range of the output's dimension. Otherwise all uses as a whole
    subscript must agree. Uses inside the branches of a conditional count only if there are no others, since the condition
    restricts their values.
    """
    inference = _Inference(stage, shape, buffers, env)
    inference.visit(stage.value, inference.introduce(stage.indices, {}), False)
    inference.require_ranges_without_indices()
    ranges = Ranges()
    each(*(lambda spec=spec: ranges.set(spec, inference.settled(spec)) for spec in inference.specs))
    return ranges


Scope = Mapping[str, tree.IndexSpec]
"""The indices at a place in a stage, by name."""


class _Inference:
    """The indices of a stage, with their uses as whole subscripts."""

    def __init__(
        self, stage: tree.Stage, shape: tuple[Expr, ...] | None, buffers: Mapping[str, Buffer], env: Environment
    ) -> None:
        self.stage = stage
        self.shape = shape
        self.buffers = buffers
        self.env = env
        self.specs: list[tree.IndexSpec] = []
        self.uses: dict[int, list[Use]] = {}

    def introduce(self, new: tuple[tree.IndexSpec, ...], scope: Scope) -> Scope:
        """The scope with new indices. Raises Invalid if the name of one is taken."""
        inner = dict(scope)
        for spec in new:
            if spec.name in inner:
                raise Invalid(TAKEN(spec.span, name=spec.name, what="an index here"))
            if spec.name in self.env:
                raise Invalid(TAKEN(spec.span, name=spec.name, what="a dimension or an attribute"))
            if spec.name in self.buffers:
                raise Invalid(TAKEN(spec.span, name=spec.name, what="a tensor"))
            inner[spec.name] = spec
            self.specs.append(spec)
            self.uses[id(spec)] = []
        return inner

    def visit(self, e: tree.Expr, scope: Scope, guarded: bool) -> None:
        """Add the uses and the indices in an expression."""
        match e:
            case tree.IndexExpr(base=tree.Name(id=name), indices=indices) if name in self.buffers:
                shape = self.buffers[name].shape
                if len(shape) != len(indices):
                    raise Invalid(RANK(e.span, name=name, rank=len(shape), count=len(indices)))
                for position, (i, size) in enumerate(zip(indices, shape, strict=True), 1):
                    if isinstance(i, tree.Name) and i.id in scope:
                        self._use(scope[i.id], size, i.span, f"subscript {position} of `{name}`", guarded)
                    else:
                        self.visit(i, scope, guarded)
            case tree.IndexExpr(base=tree.Name(id=name), indices=indices) if name == self.stage.name:
                for position, i in enumerate(indices[: len(self.stage.indices)]):
                    if isinstance(i, tree.Name) and i.id in scope and scope[i.id] not in self.stage.indices:
                        self._own_use(position, i, scope[i.id], guarded)
                    self.visit(i, scope, guarded)
            case tree.Reduce(indices=new, body=body):
                self.visit(body, self.introduce(new, scope), guarded)
            case tree.Scan(index=spec, init=init, step=step):
                if spec.name in scope and spec.extent is not None:
                    self._use(scope[spec.name], self._extent(spec.name, spec.extent), spec.span, "the scan", False)
                self.visit(init, scope, guarded)
                self.visit(step, scope, guarded)
            case tree.Conditional(cond=cond, then=then, other=other):
                self.visit(cond, scope, guarded)
                self.visit(then, scope, True)
                self.visit(other, scope, True)
            case _:
                for p in parts(e):
                    self.visit(p, scope, guarded)

    def _use(self, spec: tree.IndexSpec, size: Expr, span: Span, where: str, guarded: bool) -> None:
        self.uses[id(spec)].append(Use(size, span, where, guarded))

    def _own_use(self, position: int, i: tree.Name, of: tree.IndexSpec, guarded: bool) -> None:
        """A scan that reduces itself: the index has the range of that dimension, where it is known by now."""
        own = self.stage.indices[position]
        if self.shape is not None and position < len(self.shape):
            size = self.shape[position]
        elif own.extent is not None:
            size = self._extent(own.name, own.extent)
        else:
            return
        self._use(of, size, i.span, f"subscript {position + 1} of `{self.stage.name}`", guarded)

    def _extent(self, name: str, written: tree.Expr) -> Expr:
        return extent(written, self.env, f"the range of `{name}`")

    def require_ranges_without_indices(self) -> None:
        """Raises Invalid if a written range is over an index."""
        indices = {spec.name for spec in self.specs}
        for spec in self.specs:
            if spec.extent is not None:
                for n in names_in(spec.extent):
                    if n.id in indices:
                        text = spec.extent.span.text
                        raise Invalid(RANGE_OF_INDEX(n.span, index=spec.name, name=n.id, extent=text))

    def settled(self, spec: tree.IndexSpec) -> Expr:
        """The range of an index, on which all that is known of it agrees. Raises Invalid."""
        written = None if spec.extent is None else self._extent(spec.name, spec.extent)
        own = self._dimension(spec)
        if written is not None:
            if own is not None and written != own.extent:
                first, second = format_expr(own.extent), format_expr(written)
                position = self.stage.indices.index(spec) + 1
                raise Invalid(
                    PART_OF_STAGE(
                        spec.span, name=spec.name, stage=self.stage.name, position=position, first=first, second=second
                    )
                )
            return written
        uses = self.uses[id(spec)]
        evidence = [] if own is None else [own]
        evidence += [u for u in uses if not u.guarded]
        evidence = evidence or uses
        if not evidence:
            raise Invalid(NO_RANGE(spec.span, name=spec.name))
        for other in evidence[1:]:
            _agree(spec, evidence[0], other)
        return evidence[0].extent

    def _dimension(self, spec: tree.IndexSpec) -> Use | None:
        """The dimension of the stage that an index counts, if its shape is known."""
        if self.shape is None or spec not in self.stage.indices:
            return None
        position = self.stage.indices.index(spec)
        return Use(self.shape[position], spec.span, f"dimension {position + 1} of `{self.stage.name}`", False)


def _agree(spec: tree.IndexSpec, a: Use, b: Use) -> None:
    if a.extent != b.extent:
        first, second = format_expr(a.extent), format_expr(b.extent)
        note = Note("note", f"{a.where} has {first}, {b.where} has {second}")
        raise Invalid(RANGES_DIFFER(b.span, name=spec.name, first=first, second=second, notes=(note,)))
