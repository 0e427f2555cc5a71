"""The ranges of indices: written in the text, taken from the output's shape, or inferred from uses as subscripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tensorc_dsl.diagnostic import Note
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
from tensorc_dsl.source import Span
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
    uses: dict[int, list[Use]] = {}
    specs: list[tree.IndexSpec] = []

    def introduce(new: tuple[tree.IndexSpec, ...], scope: Mapping[str, tree.IndexSpec]) -> dict[str, tree.IndexSpec]:
        inner = dict(scope)
        for spec in new:
            if spec.name in inner:
                raise Invalid(TAKEN(spec.span, name=spec.name, what="an index here"))
            if spec.name in env:
                raise Invalid(TAKEN(spec.span, name=spec.name, what="a dimension or an attribute"))
            if spec.name in buffers:
                raise Invalid(TAKEN(spec.span, name=spec.name, what="a tensor"))
            inner[spec.name] = spec
            specs.append(spec)
            uses[id(spec)] = []
        return inner

    def own_use(position: int, i: tree.Name, of: tree.IndexSpec, guarded: bool) -> None:
        """A scan that reduces itself: the index has the range of that dimension, where it is known by now."""
        written = stage.indices[position].extent
        if shape is not None and position < len(shape):
            size = shape[position]
        elif written is not None:
            size = extent(written, env, f"the range of `{stage.indices[position].name}`")
        else:
            return
        uses[id(of)].append(Use(size, i.span, f"subscript {position + 1} of `{stage.name}`", guarded))

    def visit(e: tree.Expr, scope: Mapping[str, tree.IndexSpec], guarded: bool) -> None:
        match e:
            case tree.IndexExpr(base=tree.Name(id=name), indices=indices) if name in buffers:
                shape_of = buffers[name].shape
                if len(shape_of) != len(indices):
                    raise Invalid(RANK(e.span, name=name, rank=len(shape_of), count=len(indices)))
                for position, (i, size) in enumerate(zip(indices, shape_of, strict=True), 1):
                    if isinstance(i, tree.Name) and i.id in scope:
                        use = Use(size, i.span, f"subscript {position} of `{name}`", guarded)
                        uses[id(scope[i.id])].append(use)
                    else:
                        visit(i, scope, guarded)
            case tree.IndexExpr(base=tree.Name(id=name), indices=indices) if name == stage.name:
                for position, i in enumerate(indices[: len(stage.indices)]):
                    if isinstance(i, tree.Name) and i.id in scope and scope[i.id] not in stage.indices:
                        own_use(position, i, scope[i.id], guarded)
                    visit(i, scope, guarded)
            case tree.Reduce(indices=new, body=body):
                visit(body, introduce(new, scope), guarded)
            case tree.Scan(index=spec, init=init, step=step):
                if spec.name in scope and spec.extent is not None:
                    written = extent(spec.extent, env, f"the range of `{spec.name}`")
                    uses[id(scope[spec.name])].append(Use(written, spec.span, "the scan", False))
                visit(init, scope, guarded)
                visit(step, scope, guarded)
            case tree.Conditional(cond=cond, then=then, other=other):
                visit(cond, scope, guarded)
                visit(then, scope, True)
                visit(other, scope, True)
            case _:
                for p in parts(e):
                    visit(p, scope, guarded)

    visit(stage.value, introduce(stage.indices, {}), False)
    indices = {spec.name for spec in specs}
    for spec in specs:
        for n in names_in(spec.extent) if spec.extent is not None else ():
            if n.id in indices:
                text = spec.extent.span.text if spec.extent is not None else ""
                raise Invalid(RANGE_OF_INDEX(n.span, index=spec.name, name=n.id, extent=text))
    ranges = Ranges()

    def settle(spec: tree.IndexSpec) -> None:
        evidence = [u for u in uses[id(spec)] if not u.guarded]
        if shape is not None and spec in stage.indices:
            position = stage.indices.index(spec)
            own = Use(shape[position], spec.span, f"dimension {position + 1} of `{stage.name}`", False)
            if spec.extent is not None:
                written = extent(spec.extent, env, f"the range of `{spec.name}`")
                if written != own.extent:
                    first, second = format_expr(own.extent), format_expr(written)
                    raise Invalid(
                        PART_OF_STAGE(
                            spec.span,
                            name=spec.name,
                            stage=stage.name,
                            position=position + 1,
                            first=first,
                            second=second,
                        )
                    )
                evidence = []
            evidence.insert(0, own)
        elif spec.extent is not None:
            ranges.set(spec, extent(spec.extent, env, f"the range of `{spec.name}`"))
            return
        evidence = evidence or uses[id(spec)]
        if not evidence:
            raise Invalid(NO_RANGE(spec.span, name=spec.name))
        for other in evidence[1:]:
            _agree(spec, evidence[0], other)
        ranges.set(spec, evidence[0].extent)

    each(*(lambda spec=spec: settle(spec) for spec in specs))
    return ranges


def _agree(spec: tree.IndexSpec, a: Use, b: Use) -> None:
    if a.extent != b.extent:
        first, second = format_expr(a.extent), format_expr(b.extent)
        note = Note("note", f"{a.where} has {first}, {b.where} has {second}")
        raise Invalid(RANGES_DIFFER(b.span, name=spec.name, first=first, second=second, notes=(note,)))
