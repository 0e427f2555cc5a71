"""The default space runs the columns of a scan in parallel if steps stay in them, else the elements of each step."""

from __future__ import annotations

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.api import TaskFile
from tensorc_dsl.ir.program import Block, For, IterKind, LoopKind, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.search.expansion import stream

TEXT = """
use std.cpu.{default}

compute sums(X: f32[T, M, N]) -> Y: f32[T, M, N] {
    Y[t, i, j] = scan[t] init X[0, i, j] step Y[t - 1, i, j] + X[t, i, j]
}

/// Along `j` each step reads its neighbours, along `i` it does not.
compute rows(X: f32[M, N]) -> Y: f32[4, M, N] {
    Y[t in 4, i, j] = scan[t] init X[i, j] step Y[t - 1, i, j] + (Y[t - 1, i, j - 1] if j >= 1 else 0.0)
}

compute both(X: f32[M, N]) -> Y: f32[4, M, N] {
    Y[t in 4, i, j] =
        scan[t] init X[i, j] step Y[t - 1, i, j] + (Y[t - 1, i - 1, j - 1] if i >= 1 and j >= 1 else 0.0)
}

/// Within a step nothing is read, and each step reads what the one before made of its own row and column.
compute eliminated(A: f32[N, N]) -> S: f32[N, N, N] {
    S[k in N, i, j] =
        scan[k] init A[i, j] step (S[k - 1, i, j] - S[k - 1, i, k - 1] * S[k - 1, k - 1, j] if i >= k else S[k - 1, i, j])
}

task sums = sums(T=5, M=6, N=40) with default
task rows = rows(M=6, N=40) with default
task both = both(M=6, N=40) with default
task eliminated = eliminated(N=12) with default
"""


def nests(name: str, count: int) -> list[tuple[Trace, list[tuple[str, LoopKind]]]]:
    """Draws, and the loops around the scan in each: their names before they were split, and how they run."""
    machine = Target(vector_bits=256, cores=2, features="+avx2,+fma")
    space = TaskFile(load_source(Source("scans.tsched", TEXT)), machine)[name].space
    out: list[tuple[Trace, list[tuple[str, LoopKind]]]] = []
    for n in range(count):
        trace = space.sample(stream(n, name, "scans"))
        assert trace.refused == ()
        (around,) = (
            around
            for around, s in walk(trace.program.body)
            if isinstance(s, Block) and any(it.kind is IterKind.SCAN for it in s.iters)
        )
        out.append((trace, [(x.var.split("_")[0], x.kind) for x in around if isinstance(x, For)]))
    return out


@pytest.mark.parametrize(
    ("name", "order", "apart"),
    [("sums", "ijtj", "ij"), ("rows", "itji", "i"), ("both", "tij", ""), ("eliminated", "kij", "")],
)
def test_what_is_independent_goes_outside_of_the_steps(name: str, order: str, apart: str) -> None:
    spread = 0
    for _, around in nests(name, 6):
        kinds = dict(reversed(around))
        steps = next(n for n, (var, _) in enumerate(around) if var in "tk")
        assert "".join(var[0] for var, _ in around[steps:]) == order[len(apart) :]
        assert set("".join(var for var, _ in around[:steps])) <= set(apart)
        assert around[-1][1] is LoopKind.VECTORIZED
        assert kinds["k" if name == "eliminated" else "t"] is LoopKind.SERIAL
        spread += LoopKind.PARALLEL in (kind for _, kind in around)
    assert spread == 6 if apart else 0 < spread < 6
