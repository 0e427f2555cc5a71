"""Turns expressions of the compute layer into indices: subscripts, operands of comparisons, `clamp`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from tensorc_dsl.elaborate import problems
from tensorc_dsl.elaborate.bindings import LARGEST, index_expr
from tensorc_dsl.elaborate.choices import operands
from tensorc_dsl.elaborate.inference import Extents, TypeFinder
from tensorc_dsl.elaborate.limited import kept
from tensorc_dsl.elaborate.names import FUNCTIONS, parts, unknown_index
from tensorc_dsl.elaborate.problems import Invalid, each
from tensorc_dsl.ir import expr as ir
from tensorc_dsl.ir.dtypes import INDEX, DType
from tensorc_dsl.ir.numbers import holds, limits
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.proof.sets.data_subscripts import outermost
from tensorc_dsl.proof.sets.safety import ranges_of, too_far, without_open_quotients
from tensorc_dsl.proof.sets.simplify import simplify
from tensorc_dsl.syntax import tree


class IndexBuilder(TypeFinder, ABC):
    """Builds the indices of one stage. A subclass builds values, of which `clamp` makes indices."""

    @abstractmethod
    def build(self, e: tree.Expr, want: DType | None) -> ir.Expr:
        """`e` as IR; `want` gives literals a type."""

    def index(self, e: tree.Expr, extent: ir.Expr | None = None, clamp: tree.CallExpr | None = None) -> ir.Expr:
        """A subscript of a dimension with an extent, or the index operand of a comparison or cast: simplified
        under the ranges in scope. It may contain integers that are read, if it is a subscript or in a `clamp`.
        """
        if isinstance(e, tree.Name) and e.id in self.scope:
            return ir.Var(str(e.id))
        data = clamp is not None or extent is not None
        names: Extents = {**self.env.sizes, **{n: ir.Var(str(n)) for n in self.scope}}

        def known(x: tree.Expr) -> ir.Expr | None:
            match x:
                case tree.CallExpr(function=tree.Name(id="clamp")):
                    return self._clamp(x)
                case _ if data and self._of_data(x):
                    return self._datum(x, clamp or e, extent)
                case tree.Name(id=name, span=span) | tree.IndexExpr(base=tree.Name(id=name, span=span)) if (
                    name in self.buffers and name not in names
                ):
                    raise Invalid(problems.DATA_SUBSCRIPT(span, name=name, text=e.span.text, low=0, high="…"))
                case tree.Name(id=name) if name not in names:
                    raise Invalid(unknown_index(x.span, name, names))
                case _:
                    return None

        made = index_expr(e, names, known)
        self.require_64_bits(made, e)
        # An index of extent 1 is always 0, but primitives can use a plain `n` better than `0`.
        if not isinstance(made, ir.Var):
            made = simplify(without_open_quotients(made, self.scope), ranges_of(self.scope))
        _small(made, e)
        return made

    def require_64_bits(self, made: ir.Expr, at: tree.Expr) -> None:
        """Raise Invalid where index arithmetic may leave 64 bits. Nobody knows before sizes are bound."""
        if self.env.unbound or (far := too_far(made, ranges_of(self.scope))) is None:
            return
        data, dims = outermost((far,)), ir.dims_in(far)
        repair = "use smaller numbers"
        if data:
            repair = f"keep what is read between two indices before: `clamp({format_expr(data[0].operand)}, …, …)`"
        elif dims:
            repair = "let the open dimensions end at smaller sizes"
        raise Invalid(problems.TOO_FAR(at.span, text=at.span.text, repair=repair))

    def _clamp(self, e: tree.CallExpr) -> ir.Expr:
        """`clamp(x, low, high)`: an index, or an integer that is read, limited to two indices."""
        if e.kwargs or len(e.args) != FUNCTIONS["clamp"]:
            count = len(e.args) + len(e.kwargs)
            raise Invalid(problems.ARITY(e.span, name="clamp", wanted="3 values", count=count))
        made = each(*(lambda a=a, n=n: self.index(a, clamp=None if n else e) for n, a in enumerate(e.args)))
        return kept(*made)

    def unclamped(self, e: tree.Expr) -> Iterator[str]:
        """The tensors whose values a subscript takes without `clamp`."""
        match e:
            case tree.CallExpr(function=tree.Name(id="clamp")):
                return
            case tree.Name(id=name) | tree.IndexExpr(base=tree.Name(id=name)):
                if name in self.buffers and name not in self.scope:
                    yield name
            case _:
                for x in parts(e):
                    yield from self.unclamped(x)

    def _of_data(self, e: tree.Expr) -> bool:
        """Whether `e` consists of values that are read, without indices and sizes."""
        types = {self.infer(x) for x in operands(e)} - {None}
        return bool(types) and INDEX not in types

    def _datum(self, e: tree.Expr, place: tree.Expr, extent: ir.Expr | None) -> ir.Expr:
        """An integer that is read, converted to an index. `place` is the subscript or `clamp` that it is a part of; a
        subscript has an extent.
        """
        made = self.build(e, self.infer(e))
        found = ir.dtype_of(made)
        if not found.is_integer:
            at, text = e.span.start - place.span.start, place.span.text
            repair = f"{text[:at]}i32({e.span.text}){text[at + len(e.span.text) :]}"
            if extent is not None:
                repair = f"clamp({repair}, 0, {format_expr(ir.sub(extent, ir.ONE))})"
            raise Invalid(problems.CLAMPED(e.span, text=e.span.text, found=found, repair=" ".join(repair.split())))
        if not holds(INDEX, found):  # a number beyond all indices is above every bound, and its bits would be negative
            made = ir.Binary("min", made, ir.Const(limits(INDEX)[1], found))
        return ir.Cast(made, INDEX)


def _small(e: ir.Expr, at: tree.Expr) -> None:
    if isinstance(e, ir.Const) and abs(e.value) > LARGEST:
        raise Invalid(problems.TOO_LARGE(at.span, what=f"`{at.span.text}`", value=e.value))
    for c in ir.children(e):
        _small(c, at)
