"""Makes spaces over a matrix product and a chain of two maps, from the text of a schedule or of modules and a space."""

from __future__ import annotations

import numpy as np

from tensorc_dsl.base.source import Source
from tensorc_dsl.elaborate.compute import elaborate
from tensorc_dsl.interp.space import Space
from tensorc_dsl.ir.target import Target
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.parse import parse

COMPUTES = """
compute matmul(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}

compute chain(A: f32[M, N]) -> Y: f32[M, N] {
    let E[i, j] @("rule", 1) = exp(A[i, j])
    Y[i, j] = E[i, j] + 1.0
}

compute table(I: i32[M], G: f32[M, N]) -> T: f32[9, N] {
    T[v in 9, j] = sum[i] (G[i, j] if I[i] == i32(v) else 0.0)
}

compute ragged(L: i32[M], V: f32[M], X: f32[M, N]) -> Y: f32[M, N] {
    Y[i, j] = sum[p] (V[p] * X[p, j] if i32(p) < L[i] else 0.0)
}
"""

TARGET = Target(vector_bits=256, cores=2, features="+avx2,+fma,-sse4a")


def rng(n: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(n))


def space(text: str, m: int = 32, n: int = 48, k: int = 24, compute: str = "matmul", target: Target = TARGET) -> Space:
    """The last schedule or space of the text, over one of the computes."""
    items = parse(Source("test.tsched", COMPUTES + text)).items
    known: dict[str, tree.ComputeDef] = {i.name: i for i in items if isinstance(i, tree.ComputeDef)}
    modules: dict[str, tree.ModuleDef] = {i.name: i for i in items if isinstance(i, tree.ModuleDef)}
    definition = [i for i in items if isinstance(i, tree.ScheduleDef | tree.SpaceDef)][-1]
    sizes = {"M": m, "N": n, "K": k} if compute == "matmul" else {"M": m, "N": n}
    return Space(definition, compute, elaborate(known[compute], sizes), target, modules)


def schedule(*lines: str, compute: str = "matmul") -> Space:
    """A schedule of these lines."""
    body = "\n".join(lines)
    return space(f"schedule s for {compute} {{\n{body}\n}}", compute=compute)


def again(s: Space, text: str) -> Space:
    """The space of a trace's text: the same program and machine, and no modules."""
    (definition,) = (i for i in parse(Source("trace.tsched", text)).items if isinstance(i, tree.ScheduleDef))
    return Space(definition, s.compute, s.program, s.target, {})
