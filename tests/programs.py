"""Small programs built by hand, in the form of elaborated computes: per stage a perfect nest of loops over a block.

Sizes are free, so that tests can use odd ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tensorc_dsl.base.diagnostic import render
from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.ir.dtypes import F32, DType
from tensorc_dsl.ir.expr import (
    Binary,
    Call,
    Compare,
    Const,
    Expr,
    Load,
    Select,
    Var,
    add,
    conjunction,
    constant,
    index,
    mul,
    sub,
)
from tensorc_dsl.ir.program import Block, Buffer, For, Iter, IterKind, Program, Store
from tensorc_dsl.proof.equivalence.validate import Valid, validate


def v(name: str) -> Var:
    """The iterator of the index `name`."""
    return Var(f"v{name}")


def load(buffer: str, *indices: Expr, dtype: DType = F32) -> Load:
    return Load(buffer, indices, dtype)


def buffer(name: str, *shape: int, dtype: DType = F32, scope: str = "global") -> Buffer:
    return Buffer(name, dtype, tuple(map(index, shape)), scope)


def stage(
    name: str,
    spatial: Mapping[str, int],
    value: Expr,
    reduce: Mapping[str, int] | None = None,
    op: str = "+",
    unit: float = 0.0,
    taken: Sequence[str] = (),
) -> For | Block:
    """One nest over one block that computes `name[spatial] = value`, reduced by `op` over `reduce`.

    Loops are called by their index, with a number appended where `taken` has that name.
    """
    reduce = reduce or {}
    out = tuple(v(n) for n in spatial)
    iters: list[Iter] = []
    loops: list[tuple[str, int]] = []
    for group, kind in ((spatial, IterKind.SPATIAL), (reduce, IterKind.REDUCE)):
        for n, extent in group.items():
            var, count = n, 0
            while var in taken:
                count += 1
                var = f"{n}_{count}"
            loops.append((var, extent))
            iters.append(Iter(f"v{n}", kind, index(extent), Var(var)))
    if reduce:
        update = Binary(op, Load(name, out, F32), value)  # type: ignore[arg-type]
        stmt: For | Block = Block(
            name, tuple(iters), (Store(name, out, update),), (Store(name, out, Const(unit, F32)),)
        )
    else:
        stmt = Block(name, tuple(iters), (Store(name, out, value),))
    for var, extent in reversed(loops):
        stmt = For(var, index(extent), (stmt,))
    return stmt


def matmul(m: int, n: int, k: int) -> Program:
    """C = A · B"""
    body = stage("C", {"i": m, "j": n}, Binary("*", load("A", v("i"), v("k")), load("B", v("k"), v("j"))), {"k": k})
    return Program("matmul", (buffer("A", m, k), buffer("B", k, n), buffer("C", m, n)), (), (body,))


def elementwise(m: int, n: int) -> Program:
    """B = A + 1 and C = exp(B): a chain of two stages."""
    first = stage("B", {"i": m, "j": n}, Binary("+", load("A", v("i"), v("j")), Const(1.0, F32)))
    second = stage("C", {"i": m, "j": n}, Call("exp", (load("B", v("i"), v("j")),)), taken=("i", "j"))
    return Program("add_exp", (buffer("A", m, n), buffer("C", m, n)), (buffer("B", m, n),), (first, second))


def softmax(m: int, n: int) -> Program:
    """Row softmax in four stages: m, e, s, Y."""
    x = load("X", v("i"), v("j"))
    top = stage("m", {"i": m}, x, {"j": n}, "max", float("-inf"))
    taken = ["i", "j"]
    e = stage("e", {"i": m, "j": n}, Call("exp", (Binary("-", x, load("m", v("i"))),)), taken=taken)
    taken += ["i_1", "j_1"]
    total = stage("s", {"i": m}, load("e", v("i"), v("j")), {"j": n}, taken=taken)
    taken += ["i_2", "j_2"]
    y = stage("Y", {"i": m, "j": n}, Binary("/", load("e", v("i"), v("j")), load("s", v("i"))), taken=taken)
    return Program(
        "softmax", (buffer("X", m, n), buffer("Y", m, n)), (buffer("m", m), buffer("e", m, n), buffer("s", m)),
        (top, e, total, y),
    )  # fmt: skip


def conv2d(h: int, w: int, ci: int, co: int, kh: int, kw: int, stride: int = 1, pad: int = 0) -> Program:
    """An NHWC convolution of one image; with `pad`, a padding stage P comes first."""
    oh, ow = (h + 2 * pad - kh) // stride + 1, (w + 2 * pad - kw) // stride + 1
    source = "P" if pad else "X"
    row = add(mul(v("h"), index(stride)), v("kh"))
    column = add(mul(v("w"), index(stride)), v("kw"))
    product = Binary("*", load(source, row, column, v("ci")), load("F", v("kh"), v("kw"), v("ci"), v("co")))
    padded: list[For | Block] = []
    taken: tuple[str, ...] = ()
    if pad:
        inside = conjunction(
            tuple(
                Compare(op, a, b)  # type: ignore[arg-type]
                for n, size in (("h", h), ("w", w))
                for op, a, b in (("<=", index(pad), v(n)), ("<", v(n), index(size + pad)))
            )
        )
        assert inside is not None
        x = load("X", sub(v("h"), index(pad)), sub(v("w"), index(pad)), v("ci"))
        shape = {"h": h + 2 * pad, "w": w + 2 * pad, "ci": ci}
        padded.append(stage("P", shape, Select(inside, x, Const(0.0, F32))))
        taken = tuple(shape)
    conv = stage("Y", {"h": oh, "w": ow, "co": co}, product, {"kh": kh, "kw": kw, "ci": ci}, taken=taken)
    params = (buffer("X", h, w, ci), buffer("F", kh, kw, ci, co), buffer("Y", oh, ow, co))
    between = (buffer("P", h + 2 * pad, w + 2 * pad, ci),) if pad else ()
    return Program("conv2d", params, between, (*padded, conv))


def proof_fault(before: Program, after: Program) -> str:
    """Why validation does not show that the programs compute the same; empty when it does."""
    report = validate(before, after)
    return "" if isinstance(report, Valid) else render(report.diagnostic)


def random_inputs(program: Program, seed: int = 0) -> dict[str, Array]:
    """Values for the inputs of a program whose shapes are numbers; never zeros."""
    rng = np.random.default_rng(seed)
    out: dict[str, Array] = {}
    for b in program.inputs:
        shape = [constant(e) or 0 for e in b.shape]
        drawn = rng.uniform(0.5, 1.5, shape) if b.dtype.is_float else rng.integers(1, 100, shape)
        out[b.name] = drawn.astype(np.float32 if b.dtype.is_float else stored_dtype(b.dtype))
    return out


__all__ = ["buffer", "conv2d", "elementwise", "load", "matmul", "proof_fault", "random_inputs", "softmax", "stage", "v"]
