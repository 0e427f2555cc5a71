"""Hand-scheduled matrix products against the machine's roof, measured in the same run.

    python bench/kernels.py [--size 512 1024] [--threads 1 2] [--tiles 8x32 12x32 14x32]

Each program packs B into panels as wide as a register tile, then multiplies panel by panel; packing counts.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from tensorc_dsl.backend.llvm.codegen.compile import compile_kernel
from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.backend.llvm.runtime.kernel import load
from tensorc_dsl.backend.llvm.runtime.peak import FMA, peak
from tensorc_dsl.backend.memory import aligned_copy
from tensorc_dsl.ir.dtypes import F32
from tensorc_dsl.ir.expr import Binary, Compare, Const, Expr, Load, Var, add, index, mul
from tensorc_dsl.ir.program import Block, Buffer, For, Iter, IterKind, LoopKind, Program, Stmt, Store
from tensorc_dsl.tuning.machine.host import host_target

S, P, V, U = LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.VECTORIZED, LoopKind.UNROLLED


def nest(loops: list[tuple[str, int, LoopKind]], *body: Stmt) -> Stmt:
    """Loops around a body, the first outermost."""
    out: tuple[Stmt, ...] = body
    for var, extent, kind in reversed(loops):
        out = (For(var, index(extent), out, kind),)
    return out[0]


def spatial(name: str, extent: int, binding: Expr) -> Iter:
    return Iter(name, IterKind.SPATIAL, index(extent), binding)


def tiled(outer: str, size: int, inner: str) -> Expr:
    return add(mul(Var(outer), index(size)), Var(inner))


def packed_matmul(m: int, n: int, k: int, tile_m: int, tile_n: int, unroll_k: int = 1) -> Program:
    """C = A · B with B packed, a register tile of `tile_m` x `tile_n`, panels in parallel. `m` and `n` may be any size."""
    panels, rows = -(-n // tile_n), -(-m // tile_m)
    vp, vk, vl, vi, vj = (Var(x) for x in ("vp", "vk", "vl", "vi", "vj"))
    column = add(mul(vp, index(tile_n)), vl)
    pack = nest(
        [("p", panels, P), ("kp", k, S), ("l", tile_n, V)],
        Block(
            "Bp",
            (spatial("vp", panels, Var("p")), spatial("vk", k, Var("kp")), spatial("vl", tile_n, Var("l"))),
            (Store("Bp", (vp, vk, vl), Load("B", (vk, column), F32)),),
            where=() if n % tile_n == 0 else (Compare("<", tiled("p", tile_n, "l"), index(n)),),
        ),
    )
    a, b = Load("A", (vi, vk), F32), Load("Bp", (_div(vj, tile_n), vk, _mod(vj, tile_n)), F32)
    row, col = tiled("i0", tile_m, "i1"), tiled("j0", tile_n, "j1")

    def inside(i: Expr, j: Expr) -> tuple[Expr, ...]:
        return tuple(Compare("<", e, index(size)) for e, size, t in ((i, m, tile_m), (j, n, tile_n)) if size % t)

    def f(name: str, *shape: int, scope: str = "global") -> Buffer:
        return Buffer(name, F32, tuple(map(index, shape)), scope)

    product = Block(
        "C_local",
        (
            spatial("vi", m, row),
            spatial("vj", n, col),
            Iter("vk", IterKind.REDUCE, index(k), tiled("k0", unroll_k, "k1")),
        ),
        (Store("C_local", (vi, vj), Binary("+", Load("C_local", (vi, vj), F32), Binary("*", a, b))),),
        (Store("C_local", (vi, vj), Const(0.0, F32)),),
        inside(row, col),
    )
    row2, col2 = tiled("i0", tile_m, "i2"), tiled("j0", tile_n, "j2")
    back = Block(
        "C",
        (spatial("vi", m, row2), spatial("vj", n, col2)),
        (Store("C", (vi, vj), Load("C_local", (vi, vj), F32)),),
        where=inside(row2, col2),
    )
    work = nest(
        [("j0", panels, P), ("i0", rows, S)],
        nest([("k0", k // unroll_k, S), ("k1", unroll_k, U), ("i1", tile_m, U), ("j1", tile_n, V)], product),
        nest([("i2", tile_m, U), ("j2", tile_n, V)], back),
    )
    return Program(
        "matmul",
        (f("A", m, k), f("B", k, n), f("C", m, n)),
        (f("Bp", panels, k, tile_n), f("C_local", m, n, scope="local")),
        (pack, work),
    )


def _div(a: Expr, n: int) -> Expr:
    return Binary("/", a, index(n))


def _mod(a: Expr, n: int) -> Expr:
    return Binary("%", a, index(n))


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--size", type=int, nargs="+", default=[512, 1024])
    args.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    args.add_argument("--tiles", nargs="+", default=["8x32", "12x32", "14x32"])
    args.add_argument("--unroll", type=int, nargs="+", default=[1, 4])
    args.add_argument("--repeats", type=int, default=60)
    options = args.parse_args()
    print(
        f"{'n':>5} {'threads':>7} {'tile':>6} {'k':>2} {'best ms':>8} {'GFLOP/s':>8} {'roof':>7} {'share':>6} {'build ms':>8}"
    )
    rng = np.random.default_rng(0)
    for n in options.size:
        a, b = (aligned_copy(rng.uniform(0.5, 1.5, (n, n)).astype(np.float32)) for _ in range(2))
        want = a.astype(np.float64) @ b.astype(np.float64)
        for threads in options.threads:
            target = host_target(threads)
            for tile in options.tiles:
                tm, tn = map(int, tile.split("x"))
                for unroll in options.unroll:
                    start = time.perf_counter()
                    compiled = compile_kernel(lower_cpu(packed_matmul(n, n, n, tm, tn, unroll)), target, threads)
                    build = time.perf_counter() - start
                    kernel = load(compiled)
                    c = aligned_copy(np.full((n, n), np.nan, np.float32))
                    kernel(a, b, c)
                    np.testing.assert_allclose(c, want, rtol=1e-5)
                    roof = peak(FMA, target, threads)
                    best = min(kernel.time((a, b, c), options.repeats))
                    roof = max(roof, peak(FMA, target, threads))
                    rate = 2 * n**3 / best
                    print(
                        f"{n:5} {threads:7} {tile:>6} {unroll:2} {best * 1e3:8.3f} {rate / 1e9:8.1f} {roof / 1e9:7.1f} "
                        f"{rate / roof:6.1%} {build * 1e3:8.1f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
