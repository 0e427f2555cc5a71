"""Stencils over time: scans whose steps read their neighbours. Each as the range of `S` over space, its first values, its
step and its result, over an input `X`; and sizes at which neither the steps nor the rows fill their tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

INSIDE = "1 <= i < N - 1 and 1 <= j < M - 1"


@dataclass(frozen=True, slots=True)
class Stencil:
    body: str
    dims: str = "N, M"
    sizes: str = "N=37, M=53"
    dtype: str = "f32"

    @property
    def text(self) -> str:
        """A task `t` under the default space."""
        dims = self.dims
        return f"""use std.cpu.{{default}}
compute c(X: {self.dtype}[{dims}]) -> Y: {self.dtype}[{dims}] {{
{self.body}
}}
task t = c({self.sizes}) with default
"""


STENCILS = {
    "jacobi": Stencil(f"""let S[t in 14, i in N, j in M] = scan[t] init X[i, j]
        step (0.2 * (S[t - 1, i, j] + S[t - 1, i, j - 1] + S[t - 1, i, j + 1] + S[t - 1, i + 1, j] + S[t - 1, i - 1, j])
            if {INSIDE} else S[t - 1, i, j])
        Y[i, j] = S[13, i, j]"""),
    "border_of_zeros": Stencil(
        f"""let S[t in 10, i in N, j in M] = scan[t] init X[i, j]
        step (S[t - 1, i - 1, j] + S[t - 1, i + 1, j] - S[t - 1, i, j + 1] if {INSIDE} else 0)
        Y[i, j] = S[9, i, j]""",
        dtype="i32",
    ),
    "wave": Stencil(
        f"""let S[t in 14, i in N, j in M] = scan[t] init X[i, j]
        step (S[t - 1, i - 1, j] + S[t - 1, i, j + 1] - (S[t - 2, i, j] if t >= 2 else 0) if {INSIDE} else 0)
        Y[i, j] = S[13, i, j]""",
        dtype="i32",
    ),
    "upwind": Stencil(
        """let S[t in 11, i in N, j in M] = scan[t] init X[i, j]
        step (S[t - 1, i + 2, j] - S[t - 1, i, j + 1] if i + 2 < N and j + 1 < M else S[t - 1, i, j])
        Y[i, j] = S[10, i, j]""",
        dtype="i32",
    ),
    "wide": Stencil(
        """let S[t in 9, i in N, j in M] = scan[t] init X[i, j]
        step (S[t - 1, i + 2, j] - S[t - 1, i - 3, j - 1] if 3 <= i < N - 2 and j >= 1 else S[t - 1, i, j])
        Y[i, j] = S[8, i, j]""",
        dtype="i32",
    ),
    "heat": Stencil(
        """let S[t in 7, i in N, j in M, k in K] = scan[t] init X[i, j, k]
        step (S[t - 1, i, j, k] + 0.1 * (S[t - 1, i - 1, j, k] + S[t - 1, i + 1, j, k] + S[t - 1, i, j - 1, k]
            + S[t - 1, i, j + 1, k] + S[t - 1, i, j, k - 1] + S[t - 1, i, j, k + 1] - 6.0 * S[t - 1, i, j, k])
            if 1 <= i < N - 1 and 1 <= j < M - 1 and 1 <= k < K - 1 else S[t - 1, i, j, k])
        Y[i, j, k] = S[6, i, j, k]""",
        "N, M, K",
        "N=19, M=9, K=21",
    ),
    "every_step": Stencil(
        f"""let S[t in 6, i in N, j in M] = scan[t] init X[i, j]
        step (S[t - 1, i - 1, j] + S[t - 1, i, j + 1] if {INSIDE} else 0)
        Y[i, j] = S[5, i, j] + S[2, i, j]""",
        dtype="i32",
    ),
    "back": Stencil(
        f"""let S[t in 9, i in N, j in M] = scan[t] init X[i, j]
        step (S[t + 1, i - 1, j] + S[t + 1, i, j + 1] if {INSIDE} else S[t + 1, i, j])
        Y[i, j] = S[0, i, j]""",
        dtype="i32",
    ),
}
