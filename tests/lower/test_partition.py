"""Cutting loops keeps exactly the iterations whose guards hold, in their order."""

from __future__ import annotations

import operator

from hypothesis import given
from hypothesis import strategies as st

from tensorc_dsl.ir.dtypes import INDEX
from tensorc_dsl.ir.expr import Binary, Compare, Const, Expr, Load, Logic, Not, Var, add, index, mul
from tensorc_dsl.ir.program import LoopKind, Store
from tensorc_dsl.lower.flat import Alloc, Flat, If, Loop, Parallel
from tensorc_dsl.lower.guards import hoist_guards
from tensorc_dsl.lower.partition import partition

OPS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv, "%": operator.mod,
    "min": min, "max": max, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def value(e: Expr, env: dict[str, int]) -> int:
    match e:
        case Const(value=v):
            return int(v)
        case Var(name=name):
            return env[name]
        case Binary(op=op, lhs=a, rhs=b) | Compare(op=op, lhs=a, rhs=b):
            return int(OPS[op](value(a, env), value(b, env)))
        case Logic(op=op, lhs=a, rhs=b):
            x, y = value(a, env), value(b, env)
            return x & y if op == "and" else x | y
        case Not(operand=a):
            return 1 - value(a, env)
        case _:
            raise AssertionError(e)


def trail(body: tuple[Flat, ...], env: dict[str, int]) -> list[int]:
    """The subscripts of the stores that run, in order."""
    out: list[int] = []
    for s in body:
        match s:
            case Store():
                out.append(value(s.indices[0], env))
            case If():
                out += trail(s.body, env) if value(s.cond, env) else []
            case Loop():
                for k in range(value(s.begin, env), value(s.end, env)):
                    out += trail(s.body, {**env, s.var: k})
            case Parallel():
                (var,), (extent,) = s.vars, s.extents
                for k in range(value(extent, env)):
                    out += trail(s.body, {**env, var: k})
            case Alloc():
                out += trail(s.body, env)
    return out


small = st.integers(-4, 4)
comparisons = st.builds(
    lambda op, a, b, c: Compare(op, add(add(mul(Var("i"), index(a)), mul(Var("j"), index(b))), index(c)), index(0)),
    st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), small, small, st.integers(-12, 12),
)  # fmt: skip
divisions = st.builds(
    lambda op, a, d, c: Compare("<", Binary(op, add(mul(Var("i"), index(a)), Var("j")), index(d)), index(c)),
    st.sampled_from(["/", "%"]), small, st.integers(1, 5), small,
)  # fmt: skip
conditions = st.recursive(
    comparisons | divisions,
    lambda inner: st.builds(Logic, st.sampled_from(["and", "or"]), inner, inner) | st.builds(Not, inner),
    max_leaves=3,
)


@given(
    st.lists(conditions, max_size=3),
    st.integers(1, 7),
    st.integers(1, 7),
    st.sampled_from(list(LoopKind)),
    st.booleans(),
)
def test_the_same_iterations_run(conds: list[Expr], m: int, n: int, kind: LoopKind, split_body: bool) -> None:
    store = Store("C", (add(mul(Var("i"), index(100)), Var("j")),), Load("A", (Const(0, INDEX),), INDEX))
    body: tuple[Flat, ...] = (store,)
    for c in conds:
        body = (If(c, body), store) if split_body else (If(c, body),)
    inner = Loop("j", index(0), index(n), kind, body)
    nest: Flat = (
        Parallel(("i",), (index(m),), (inner,))
        if kind is LoopKind.PARALLEL
        else Loop("i", index(0), index(m), LoopKind.SERIAL, (inner,))
    )
    want = trail((nest,), {})
    assert trail(hoist_guards((nest,)), {}) == want
    assert trail(partition((nest,)), {}) == want
    assert trail(partition(hoist_guards((nest,))), {}) == want
