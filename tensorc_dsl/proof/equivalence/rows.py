"""Proves that a row of a result has the same bits in every batch: for each number of rows that a task allows.

Two programs are compared that run on the same arrays, of `M + more` rows. One computes their first `M` rows as if there
were no others, and the other one all of them; of both, the first `M` rows of each result are taken. If these have the same
bits for all `M` and `more`, row `i` has the same bits whatever comes behind it.
"""

from __future__ import annotations

from tensorc_dsl.base.diagnostic import Diagnostic, problem
from tensorc_dsl.ir.expr import Dim, Expr, Load, Var, add, dims_in
from tensorc_dsl.ir.input_views import resolved
from tensorc_dsl.ir.node import replace
from tensorc_dsl.ir.program import Block, Buffer, For, Iter, IterKind, Program, Stmt, Store, fresh, used_names
from tensorc_dsl.ir.sizes import with_sizes
from tensorc_dsl.proof.equivalence.bits import of_zeros, parting
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
def NO_ROWS(*, dim: str, program: str, reason: str) -> None: ...


def same_rows(one: Program, other: Program, dim: str) -> Valid | Unproved:
    """Whether each row of each result has the same bits by both programs, the cases of one dispatch or the same one twice,
    with any two sizes of the open dimension `dim`, which counts the rows."""
    one, other = resolved(one), resolved(other)
    if (none := no_rows(one, dim)) is not None:
        return Unproved(none)
    if one.cases or other.cases:
        return Unproved(ROWS_DIFFER(None, dim=dim, reason="kernels that `select` among are not compared row by row"))
    names = (f"for fewer {dim}", f"for more {dim}")
    found = parting(_first_rows(one, dim, alone=True), _first_rows(other, dim, alone=False), names)
    if found is None:
        return Valid(of_zeros(one, other))
    return Unproved(ROWS_DIFFER(None, found.notes, dim=dim, reason=found.reason))


def no_rows(program: Program, dim: str) -> Diagnostic | None:
    """The error if an open dimension counts no rows of the results of a program."""
    reason = _no_rows(program, dim)
    return None if reason is None else NO_ROWS(None, dim=dim, program=program.name, reason=reason)


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


def _first_rows(program: Program, dim: str, *, alone: bool) -> Program:
    """The program on arrays with more rows, of whose results the first ones are copied; `alone` if it computes only these."""
    (rows,) = (d for d in program.dims if d.name == dim)
    used = used_names(program)
    more = Dim(fresh("more", used))
    every = add(rows, more)
    dims = (*program.dims, more)
    body = program if alone else with_sizes(program, {dim: every}, dims)
    outputs = {p.name for p in program.outputs}
    longer = {dim: every}
    params: list[Buffer] = []
    for p in program.params:
        if p.name not in outputs:
            params.append(with_sizes(replace(program, params=(p,), buffers=(), body=()), longer, dims).params[0])
    results: list[Buffer] = []
    copies: list[Stmt] = []
    for p in program.outputs:
        result = replace(p, name=fresh(f"{p.name}_rows", used), updates="")
        results.append(result)
        copies.append(_copy(p, result, used))
    own = tuple(replace(p, updates="") for p in body.params if p.name in outputs)
    return replace(
        body, params=(*params, *results), buffers=(*own, *body.buffers), body=(*body.body, *copies), dims=dims
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
