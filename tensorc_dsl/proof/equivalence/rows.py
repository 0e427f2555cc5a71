"""Proves that a row of a result has the same bits in every batch: for each number of rows that a task allows.

Two programs are compared that run on the same arrays, of `M + more` rows. One computes their first `M` rows as if there
were no others, and the other one all of them; of both, the first `M` rows of each result are taken. If these have the same
bits for all `M` and `more`, row `i` has the same bits whatever comes behind it.

Of a dispatch each case is compared with itself so, and each two cases: the one with fewer rows computes the first rows of the
arrays of the other, for all sizes of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorc_dsl.base.diagnostic import Diagnostic, problem
from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.cases import Box, Range, common, described, narrowed, without
from tensorc_dsl.ir.expr import Dim, Expr, Load, Var, add, dims_in, index
from tensorc_dsl.ir.input_views import resolved
from tensorc_dsl.ir.program import Block, Buffer, For, Iter, IterKind, Program, Stmt, Store, fresh, used_names
from tensorc_dsl.ir.sizes import with_sizes, without_conditions
from tensorc_dsl.proof.equivalence.bits import Parting, of_zeros, parting
from tensorc_dsl.proof.equivalence.validate import Unproved, Valid


@problem(
    "E0811",
    "it is not proved that a row has the same bits for every `{dim}`: {reason}",
    help="search with `--same-rows {dim}`, or begin the schedule with `keep_order()`",
)
def ROWS_DIFFER(*, dim: str, reason: str) -> None: ...
@problem(
    "E0811",
    "`{dim}` counts no rows of `{program}`: {reason}",
    help="name an open dimension that is an extent of each result, as M of `C: f32[M, N]` in a task with `M=1..64`",
)
def ROWS_UNPROVED(*, dim: str, program: str, reason: str) -> None: ...


def same_rows(one: Program, other: Program, dim: str) -> Valid | Unproved:
    """Whether each row of each result has the same bits by both programs, the cases of one dispatch or the same one twice,
    with any two sizes of the open dimension `dim`, which counts the rows.

    Of divided programs all cases are compared that share sizes of the other dimensions. Rows of more sizes are compared than
    occur, where the dimensions have conditions.
    """
    if (none := no_rows(one, dim)) is not None:
        return Unproved(none)
    if one is not other:
        one, other = without_conditions(one), without_conditions(other)
        if one.cases or other.cases:
            return Unproved(
                ROWS_DIFFER(None, dim=dim, reason="what selects among kernels is compared with itself alone")
            )
        found = _parted(one, other, dim)
        return Valid(of_zeros(one, other)) if found is None else _unproved(found, dim)
    one = other = without_conditions(one)
    parts = _parts(one)
    for n, part in enumerate(parts):
        found = _parted(part.program, part.program, dim) if any(d.name == dim for d in part.program.dims) else None
        for before in parts[:n]:
            if found is None and (pair := _ordered(before, part, dim)) is not None:
                found = _parted_across(one, *pair, dim)
        if found is not None:
            return _unproved(found, dim)
    return Valid(of_zeros(one))


def _unproved(found: Parting, dim: str) -> Unproved:
    return Unproved(ROWS_DIFFER(None, found.notes, dim=dim, reason=found.reason))


@frozen
class _Part:
    """A program for a box of sizes: no two of a divided program share sizes."""

    sizes: dict[str, Range]
    program: Program

    def without(self, dim: str) -> dict[str, Range]:
        """The sizes of the other dimensions."""
        return {n: r for n, r in self.sizes.items() if n != dim}


def _parts(program: Program) -> list[_Part]:
    """The cases of a divided program, those of divided cases included, each with sizes that no case before it has."""
    every = {d.name: (d.low, d.high) for d in program.dims}
    if not program.cases:
        return [_Part(every, program)]
    out: list[_Part] = []
    taken: list[Box] = []
    for case in program.cases:
        rest: list[Box] = [case.sizes]
        for box in taken:
            rest = without(rest, box)
        taken.append(case.sizes)
        for box in rest:
            inside = narrowed(case.program, program.divided_by, box)
            here = every | dict(zip(program.divided_by, box, strict=True))
            out += [_Part(here | part.sizes, part.program) for part in _parts(inside)]
    return out


def _ordered(a: _Part, b: _Part, dim: str) -> tuple[_Part, _Part] | None:
    """Two parts with the sizes of the other dimensions that they share, the one with fewer rows first; None if they share
    none."""
    names = [*a.without(dim)]
    box = common(tuple(a.sizes[n] for n in names), tuple(b.sizes[n] for n in names))
    if box is None:
        return None
    shared = dict(zip(names, box, strict=True))
    a, b = (_Part(shared | {dim: p.sizes[dim]}, narrowed(p.program, names, box)) for p in (a, b))
    return (a, b) if a.sizes[dim][0] < b.sizes[dim][0] else (b, a)


def _parted(one: Program, other: Program, dim: str) -> Parting | None:
    """Where rows part between fewer and more of them, each computed by one of the programs."""
    one, other = resolved(one), resolved(other)
    used = used_names(one) | used_names(other)
    (rows,) = (d for d in one.dims if d.name == dim)
    every = add(rows, Dim(fresh("more", used)))
    dims = (*one.dims, *(d for d in dims_in(every) if d != rows))
    longer = with_sizes(other, {dim: every}, dims)
    given, taken = (_shaped(one, {dim: e}, dims) for e in (every, rows))
    first, second = (_first_rows(p, given, taken, dims) for p in (one, longer))
    return parting(first, second, (f"for fewer {dim}", f"for more {dim}"))


def _parted_across(whole: Program, few: _Part, more: _Part, dim: str) -> Parting | None:
    """Where rows part between a case and another one, for more rows."""
    a, b = resolved(few.program), resolved(more.program)
    used = used_names(a) | used_names(b) | used_names(whole)
    low, high = more.sizes[dim]
    every: Expr = index(low) if low == high else Dim(fresh("more", used), low, high)
    b = with_sizes(b, {dim: every}) if any(d.name == dim for d in b.dims) else b
    least, most = few.sizes[dim]
    rows: Expr = index(least) if least == most else Dim(dim, least, most)
    others = {n: index(x) if x == y else Dim(n, x, y) for n, (x, y) in few.without(dim).items()}
    dims = tuple(e for e in (rows, every, *others.values()) if isinstance(e, Dim))
    given, taken = (_shaped(whole, {dim: e, **others}, dims) for e in (every, rows))
    first, second = (_first_rows(p, given, taken, dims) for p in (a, b))
    names = [*few.sizes]
    fewer, further = (f"for {described(names, tuple(part.sizes[n] for n in names))}" for part in (few, more))
    found = parting(first, second, (fewer, further))
    return None if found is None else Parting(f"{fewer} and {further}, {found.reason}", found.notes)


def _shaped(program: Program, sizes: Mapping[str, Expr], dims: tuple[Dim, ...]) -> tuple[Buffer, ...]:
    """The parameters of a program with these sizes."""
    return with_sizes(replace(resolved(program), buffers=(), body=(), divided_by=(), cases=()), sizes, dims).params


def no_rows(program: Program, dim: str) -> Diagnostic | None:
    """The error if an open dimension counts no rows of the results of a program."""
    reason = _no_rows(program, dim)
    return None if reason is None else ROWS_UNPROVED(None, dim=dim, program=program.name, reason=reason)


def _no_rows(program: Program, dim: str) -> str | None:
    """Why a dimension counts no rows; None if it does."""
    if all(d.name != dim for d in program.dims):
        return f"its open dimensions are {', '.join(d.name for d in program.dims) or 'none'}"
    for p in program.outputs:
        if not any(_is(e, dim) for e in p.shape):
            return f"`{p.name}` has none"
    for p in program.params:
        if any(d.name == dim for e in p.shape if not _is(e, dim) for d in dims_in(e)) or p.strides:
            return f"`{p.name}` is an array of another form"
    return None


def _is(e: Expr, dim: str) -> bool:
    return isinstance(e, Dim) and e.name == dim


def _first_rows(program: Program, given: Sequence[Buffer], taken: Sequence[Buffer], dims: tuple[Dim, ...]) -> Program:
    """The program on the arrays that are `given`, which may have more rows than it reads; of its results the rows that the
    arrays `taken` have are copied."""
    used = used_names(program) | {p.name for p in given}
    outputs = {p.name for p in program.outputs}
    results: list[Buffer] = []
    copies: list[Stmt] = []
    for p in taken:
        if p.name in outputs:
            result = replace(p, name=fresh(f"{p.name}_rows", used), updates="")
            results.append(result)
            copies.append(_copy(p, result, used))
    own = tuple(replace(p, updates="") for p in program.params if p.name in outputs)
    return replace(
        program,
        params=(*(p for p in given if p.name not in outputs), *results),
        buffers=(*own, *program.buffers),
        body=(*program.body, *copies),
        dims=dims,
    )


def _copy(source: Buffer, to: Buffer, used: set[str]) -> Stmt:
    loops = [fresh("row", used) for _ in to.shape]
    names = [f"v{n}" for n in range(len(loops))]
    iters = tuple(Iter(v, IterKind.SPATIAL, e, Var(x)) for v, e, x in zip(names, to.shape, loops, strict=True))
    at = tuple(map(Var, names))
    stmt: Stmt = Block(fresh(f"{to.name}_copy", used), iters, (Store(to.name, at, Load(source.name, at, to.dtype)),))
    for x, e in reversed(list(zip(loops, to.shape, strict=True))):
        stmt = For(x, e, (stmt,))
    return stmt
