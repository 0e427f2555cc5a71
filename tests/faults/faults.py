"""Faults to plant in primitives: each removes one proof or changes one formula, and has steps that show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tensorc_dsl.ir.dtypes import F32
from tensorc_dsl.ir.expr import ONE, Compare, Const, add, constant, floordiv, index
from tensorc_dsl.proof.sets.linear_forms import TRUE

P = "tensorc_dsl.schedule.primitives."


@dataclass(frozen=True)
class Fault:
    """`at` is the function that is replaced, `by` makes the replacement from what was there."""

    title: str
    at: str
    by: Callable[[Any], Any]
    program: str
    call: str


def _never(_: Any) -> Any:
    """A test that finds nothing."""
    return lambda *_, **__: None


def _always(_: Any) -> Any:
    """A test that is passed."""
    return lambda *_, **__: True


MATMUL = """
program mm(A: f32[5, 6], B: f32[6, 7], C: f32[5, 7]) {
    for i in 5, j in 7, k in 6 {
        block C {
            spatial vi in 5 = i; spatial vj in 7 = j; reduce vk in 6 = k
            init { C[vi, vj] = 0.0 }
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        }
    }
}
"""
CHAIN = """
program chain(X: f32[5, 7], Y: f32[5, 7]) {
    buffer T: f32[5, 7]
    for i in 5, j in 7 { block T { spatial vi in 5 = i; spatial vj in 7 = j; T[vi, vj] = X[vi, vj] + 1.0 } }
    for i_1 in 5, j_1 in 7 { block Y { spatial vi in 5 = i_1; spatial vj in 7 = j_1; Y[vi, vj] = exp(T[vi, vj]) } }
}
"""
WINDOWS = """
program windows(X: f32[11], Y: f32[5]) {
    buffer T: f32[11]
    for h in 11 { block T { spatial vh in 11 = h; T[vh] = X[vh] * X[vh] } }
    for t in 5, r in 3 {
        block Y {
            spatial vt in 5 = t; reduce vr in 3 = r
            init { Y[vt] = 0.0 }
            Y[vt] = Y[vt] + T[vt * 2 + vr]
        }
    }
}
"""
ROWS = """
program rows(X: f32[5, 7], Y: f32[5, 7]) {
    buffer s: f32[5]
    for i in 5, j in 7 {
        block s {
            spatial vi in 5 = i; reduce vj in 7 = j
            init { s[vi] = 0.0 }
            s[vi] = s[vi] + X[vi, vj]
        }
    }
    for i_1 in 5, j_1 in 7 { block Y { spatial vi in 5 = i_1; spatial vj in 7 = j_1; Y[vi, vj] = X[vi, vj] - s[vi] } }
}
"""
STENCIL = """
program stencil(X: f32[5, 7], Y: f32[5, 7]) {
    for i in 5, j in 7 {
        block Y {
            scan vi in 5 = i; spatial vj in 7 = j
            Y[vi, vj] = Y[vi - 1, vj + 1] + X[vi, vj] if vi >= 1 and vj < 6 else X[vi, vj]
        }
    }
}
"""
SHIFTED = """
program shifted(X: f32[7], Y: f32[7]) {
    buffer T: f32[7]
    for i in 7 {
        block T { spatial vi in 7 = i; T[vi] = X[vi] * 2.0 }
        block Y { spatial vi in 7 = i; Y[vi] = T[vi - 1] if vi >= 1 else X[vi] }
    }
}
"""
PADDED = """
program padded(X: f32[5], Y: f32[7]) {
    for i in 7 { block Y { spatial vi in 7 = i; Y[vi] = X[vi - 1] if vi >= 1 and vi < 6 else 0.0 } }
}
"""
GREATEST = """
program greatest(X: f32[5, 7], Y: f32[5]) {
    for i in 5, k in 7 {
        block Y {
            spatial vi in 5 = i; reduce vk in 7 = k
            init { Y[vi] = -inf }
            Y[vi] = max(Y[vi], X[vi, vk])
        }
    }
}
"""
RELU = """
program relu(X: f32[5, 7], Y: f32[5]) {
    buffer s: f32[5]
    for i in 5, k in 7 {
        block s {
            spatial vi in 5 = i; reduce vk in 7 = k
            init { s[vi] = 0.0 }
            s[vi] = s[vi] + X[vi, vk]
        }
    }
    for i_1 in 5 { block Y { spatial vi in 5 = i_1; Y[vi] = max(s[vi], 0.0) } }
}
"""


PARTLY = """
program part(X: f32[3], Y: f32[5]) {
    buffer T: f32[5]
    for h in 3 { block T { spatial vh in 3 = h; T[vh + 1] = X[vh] } }
    for i in 5 { block Y { spatial vi in 5 = i; Y[vi] = T[vi] if vi >= 1 and vi < 4 else 0.0 } }
}
"""


def _no_bound(real: Any) -> Any:
    return lambda e, ranges: TRUE if isinstance(e, Compare) else real(e, ranges)


def _smaller(real: Any) -> Any:
    """A box without its last element."""
    return lambda *args: tuple(
        (low, index(n - 1) if (n := constant(extent) or 0) > 1 else extent) for low, extent in real(*args)
    )


def _one_off(real: Any) -> Any:
    return lambda *args: tuple((add(low, ONE), extent) for low, extent in real(*args))


def _starting_at_one(real: Any) -> Any:
    return lambda b: tuple(replace(p, start=tuple(Const(1.0, s.dtype) for s in p.start)) for p in real(b))


def _transposed(real: Any) -> Any:
    def placed(b: Any, buffer: str, layout: Any) -> Any:
        return real(b, buffer, replace(layout, results=layout.results[::-1]))

    return placed


def _reversed(real: Any) -> Any:
    """What is put in goes behind instead of before."""
    return lambda program, site, before=(), after=(): real(program, site, after, before)


FAULTS = (
    Fault(
        "split drops the guard of the last tile",
        P + "split.simplify",
        _no_bound,
        MATMUL,
        "split(i, [_, 2], partial=true)",
    ),
    Fault(
        "split drops the last tile", P + "split.ceildiv", lambda _: floordiv, MATMUL, "split(i, [_, 2], partial=true)"
    ),
    Fault("fuse uses quotients in place of remainders", P + "fuse.floormod", lambda _: floordiv, MATMUL, "fuse(i, j)"),
    Fault("reorder makes no dependence test", P + "reorder.broken", _never, STENCIL, "reorder(j, i)"),
    Fault("parallel makes no dependence test", "tensorc_dsl.schedule.kinds.carried", _never, SHIFTED, "parallel(i)"),
    Fault("vectorize makes no dependence test", "tensorc_dsl.schedule.kinds.carried", _never, SHIFTED, "vectorize(i)"),
    Fault(
        "parallel takes the loop of a reduction",
        "tensorc_dsl.schedule.kinds.refuse_race",
        _never,
        MATMUL,
        "parallel(k)",
    ),
    Fault(
        "decompose_reduction loses the guards",
        P + "decompose_reduction.simplify_where",
        lambda _: lambda *_: (),
        MATMUL,
        "split(i, [_, 2], partial=true)\ndecompose_reduction(C, i_0)",
    ),
    Fault(
        "decompose_reduction begins below the reduction",
        P + "decompose_reduction.steps_of",
        lambda _: lambda *_: frozenset(),
        MATMUL,
        "reorder(k, i)\ndecompose_reduction(C, i)",
    ),
    Fault(
        "compute_at computes too small a box", P + "compute_at.required_region", _smaller, WINDOWS, "compute_at(T, t)"
    ),
    Fault(
        "compute_at computes the neighbouring box",
        P + "compute_at.required_region",
        _one_off,
        WINDOWS,
        "compute_at(T, t)",
    ),
    Fault(
        "compute_inline inlines a value that changes in between",
        P + "compute_inline.unready_input",
        _never,
        """
program between(X: f32[5], Y: f32[5], Z: f32[5]) {
    buffer S: f32[5]
    buffer T: f32[5]
    for a in 5 { block S { spatial v in 5 = a; S[v] = X[v] } }
    for b in 5 { block T { spatial v in 5 = b; T[v] = S[v] + 1.0 } }
    for c in 5 { block S_2 { spatial v in 5 = c; S[v] = X[v] * 3.0 } }
    for d in 5 { block Y { spatial v in 5 = d; Y[v] = T[v] } }
    for e in 5 { block Z { spatial v in 5 = e; Z[v] = S[v] } }
}
""",
        "compute_inline(T)",
    ),
    Fault(
        "cache_read copies too small a box",
        P + "cache_read._within",
        lambda real: lambda region, source: _smaller(lambda: real(region, source))(),
        WINDOWS,
        "cache_read(Y, T)",
    ),
    Fault(
        "cache_read copies before the buffer is filled", P + "cache_read.insert", _reversed, CHAIN, "cache_read(Y, T)"
    ),
    Fault(
        "cache_write copies out before the block has run", P + "cache_write.insert", _reversed, MATMUL, "cache_write(C)"
    ),
    Fault(
        "cache_inplace reads in after the block and writes back before it",
        P + "cache_inplace.insert",
        _reversed,
        MATMUL,
        "decompose_reduction(C, i)\ncache_inplace(C, C)",
    ),
    Fault(
        "rfactor does not guard excluded steps",
        P + "rfactor._guards",
        lambda real: lambda *a: (real(*a)[0], None),
        MATMUL,
        "split(k, [_, 4], partial=true)\nrfactor(C, k_1)",
    ),
    Fault(
        "rfactor starts parts from 1",
        "tensorc_dsl.schedule.accumulation.parts_of",
        _starting_at_one,
        MATMUL,
        "split(k, [_, 2])\nrfactor(C, k_0)",
    ),
    Fault(
        "rfactor omits the initial values of parts",
        P + "rfactor.partial_results",
        lambda real: lambda *a: replace(real(*a), init=()),
        MATMUL,
        "split(k, [_, 2])\nrfactor(C, k_0)",
    ),
    Fault("pad_einsum pads a maximum with 0", P + "pad_einsum._check_steps", _never, GREATEST, "pad_einsum(Y, [1, 4])"),
    Fault(
        "pad_einsum does not crop the result",
        P + "pad_einsum.copy_nest",
        lambda real: lambda name, to, source, box, used: real(name, to, source, _smaller(lambda: box)(), used),
        MATMUL,
        "pad_einsum(C, [4, 1, 1])",
    ),
    Fault(
        "pad_einsum does not require that inputs are written",
        P + "pad_einsum.require_defined",
        _never,
        PARTLY,
        "pad_einsum(Y, [2])",
    ),
    Fault(
        "decompose_padding copies one element less",
        P + "decompose_padding._narrowed",
        lambda real: lambda *a: {k: (lo, hi - 1) for k, (lo, hi) in real(*a).items()},
        PADDED,
        "decompose_padding(Y, i)",
    ),
    Fault(
        "reverse_compute_inline drops a condition",
        P + "reverse_compute_inline.simplify_where",
        lambda _: lambda *_: (),
        """
program part(X: f32[5], Y: f32[3]) {
    buffer T: f32[5]
    for i in 5 { block T { spatial v in 5 = i; T[v] = X[v] + 1.0 } }
    for k in 3 { block Y { spatial v in 3 = k; Y[v] = exp(T[v]) } }
}
""",
        "reverse_compute_inline(Y)",
    ),
    Fault(
        "fuse_reduction_epilogue takes a relu",
        P + "fuse_reduction_epilogue._others",
        lambda _: lambda *_: Const(0.5, F32),
        RELU,
        "fuse_reduction_epilogue(s, Y)",
    ),
    Fault(
        "transform_layout lets two elements share a place",
        P + "transform_layout.is_injective",
        _always,
        CHAIN,
        "transform_layout(T, (i, j) -> (i / 2, j), reorder_block=false)",
    ),
    Fault(
        "transform_layout transposes one access of two",
        P + "transform_layout._placed",
        _transposed,
        CHAIN,
        "transform_layout(T, (i, j) -> (j, i))",
    ),
    Fault(
        "set_scope makes a buffer private that iterations share",
        P + "set_scope.is_private",
        _always,
        SHIFTED,
        'set_scope(T, "local")',
    ),
    Fault(
        "loop_partition begins each part one iteration late",
        P + "loop_partition.Part",
        lambda real: (
            lambda name, begin, extent, suffix: real(name, add(begin, ONE) if suffix else begin, extent, suffix)
        ),
        CHAIN,
        "loop_partition(i, [2])",
    ),
    Fault(
        "loop_partition omits the initial values of sums",
        "tensorc_dsl.schedule.nests.prove",
        lambda _: lambda *_: False,
        MATMUL,
        "reorder(k, i)\nloop_partition(k, [2])",
    ),
    Fault(
        "merge makes no dependence test",
        P + "merge.runs_ahead",
        _never,
        """
program back(A: f32[5], B: f32[5]) {
    buffer T: f32[5]
    for i in 5 { block T { spatial v in 5 = i; T[v] = A[v] * 2.0 } }
    for k in 5 { block B { spatial v in 5 = k; B[v] = T[4 - v] + 1.0 } }
}
""",
        "merge(i, k)",
    ),
    Fault(
        "fission makes no dependence test",
        P + "fission.runs_ahead",
        _never,
        """
program so_far(A: f32[5], S: f32[5]) {
    buffer T: f32[1]
    for i in 5 {
        block T { spatial v in 1 = 0; reduce r in 5 = i; init { T[v] = 0.0 }; T[v] = T[v] + A[r] }
        block S { spatial v in 5 = i; S[v] = T[0] }
    }
}
""",
        "fission(i, T)",
    ),
    Fault(
        "move_behind makes no dependence test",
        P + "move_behind.meeting",
        _never,
        CHAIN,
        "move_behind(i, i_1)",
    ),
    Fault(
        "skew loses the last steps",
        P + "skew.add",
        lambda real: lambda a, b: real(a, index(n - 1)) if (n := constant(b)) else real(a, b),
        CHAIN,
        "skew(i, j)",
    ),
    Fault(
        "steps do not check whether iterations share a private copy",
        "tensorc_dsl.schedule.stale.refuse_races",
        _never,
        MATMUL,
        'read_at(j, C, B, "local")\nparallel(i)\ncache_write(B_local, "local")',
    ),
)
