"""Subscripts and addresses as LLVM text: linear forms of indices that all lanes share, and the distance from lane to lane."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tensorc_dsl.backend.llvm.codegen.function import Function, Piece, Scalar, SymbolTable, Value, in_memory
from tensorc_dsl.backend.llvm.codegen.scalars import binary
from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import Binary, Const, Dim, Expr, Var, free_vars
from tensorc_dsl.proof.sets.linear_forms import Context, Linear, linear


class Subscripts(ABC):
    """Writes subscripts into one function."""

    def __init__(self, f: Function, scope: SymbolTable) -> None:
        self.f = f
        self.scope = scope
        self._forms: dict[Expr, Linear] = {}

    @abstractmethod
    def value(self, e: Expr, at: Piece | None) -> Value:
        """The value of an expression: a scalar if all lanes agree, else a vector of the piece's width."""

    def form(self, e: Expr) -> Linear:
        """The linear form of a subscript, without knowledge of ranges."""
        if e not in self._forms:
            self._forms[e] = linear(e, Context({}))
        return self._forms[e]

    def known(self) -> dict[str, tuple[int | None, int | None]]:
        """The variables whose values are constants here, which are those of unrolled loops."""
        return {v: (x, x) for v, x in self.scope.vars.items() if isinstance(x, int)}

    def index(self, e: Expr) -> Scalar:
        """The value of an index expression that is the same in all lanes."""
        form = self.form(e)
        terms, constant = self.split(form, None)
        return self._sum(terms, constant)

    def split(self, form: Linear, piece: Piece | None) -> tuple[list[tuple[str, int]], int]:
        """Named terms with factors, and the constant; the lane variable has its value in lane 0 of the piece."""
        terms: list[tuple[str, int]] = []
        rows: dict[str, int] = {}
        constant = form.constant
        for atom, c in form.terms.items():
            if (row := self.row(atom)) is not None:
                rows[row[0]] = rows.get(row[0], 0) + c * row[1]
                continue
            value = self.scope.vars[atom] if isinstance(atom, str) else self._atom(atom)
            if isinstance(value, int):
                constant += c * value
            else:
                terms.append((value, c))
            if piece is not None and atom == piece.var:
                constant += c * piece.offset
        return [*terms, *((name, c) for name, c in sorted(rows.items()) if c)], constant

    def row(self, e: str | Expr) -> tuple[str, int] | None:
        """An open size, or a product of one with the number of a row that is written out, as a name and a factor; None for
        others. Whatever row an element is read from, `(y + 1) * W` with y = 2 and `y * W` with y = 3 are one address then.
        """
        factor = 1
        if isinstance(e, Binary) and e.op == "*" and isinstance(e.lhs, Var) and isinstance(e.rhs, Dim):
            number = self.scope.vars[e.lhs.name]
            if not isinstance(number, int):
                return None
            factor, e = number, e.rhs
        return (str(self.scope.vars[e.name]), factor) if isinstance(e, Dim) else None

    def _atom(self, e: Expr) -> Scalar:
        if isinstance(e, Binary) and e.op in ("/", "%", "*", "min", "max", "xor"):
            a, b = self.index(e.lhs), self.index(e.rhs)
            if isinstance(a, int) and isinstance(b, int):
                folded = linear(Binary(e.op, Const(a, INDEX), Const(b, INDEX)), Context({}))
                if not folded.terms:
                    return folded.constant
            return binary(self.f, e.op, Value(INDEX, str(a)), Value(INDEX, str(b))).ref
        return self.value(e, None).ref

    def _sum(self, terms: list[tuple[str, int]], constant: int) -> Scalar:
        total = self._scaled_sum(terms)
        if total is None:
            return constant
        return self.f.cached(f"add nsw i64 {total}, {constant}") if constant else total

    def _scaled_sum(self, terms: list[tuple[str, int]]) -> str | None:
        total: str | None = None
        for name, c in terms:
            part = name if c == 1 else self.f.cached(f"mul nsw i64 {name}, {c}")
            total = part if total is None else self.f.cached(f"add nsw i64 {total}, {part}")
        return total

    def stride(self, e: Expr, piece: Piece) -> int | None:
        """The change of `e` from lane to lane; None if it is not constant."""
        form = self.form(e)
        if any(not isinstance(a, str) and piece.var in free_vars(a) for a in form.terms):
            return None
        return form.terms.get(piece.var, 0)

    def pointer(self, buffer: str, e: Expr, piece: Piece | None) -> str:
        """The address of an element; in a piece, that of its first lane.

        The constant is added last, by an instruction of its own, so that equal bases are shared and LLVM sees the distances.
        """
        base, dtype = self.scope.buffers[buffer]
        terms, constant = self.split(self.form(e), piece)
        kind = in_memory(dtype)
        total = self._scaled_sum(terms)
        if total is not None:
            base = self.f.cached(f"getelementptr {kind}, ptr {base}, i64 {total}")
        return self.f.cached(f"getelementptr {kind}, ptr {base}, i64 {constant}") if constant else base

    def target(self, buffer: str, e: Expr, piece: Piece | None) -> str:
        """The address of an element that is stored; in a piece, that of its first lane."""
        return self.pointer(buffer, e, piece)
