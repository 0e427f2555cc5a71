"""Filters and sums along rows and columns, in both directions: computes that the default space schedules in strips."""

from __future__ import annotations

SCANS = {
    "down": "Y[y, x] = scan[y] init X[0, x] step X[y, x] + K * Y[y - 1, x]",
    "across": "Y[y, x] = scan[x] init X[y, 0] step X[y, x] + K * Y[y, x - 1]",
    "four": """let A[y, x] = scan[y] init X[0, x] step X[y, x] + K * A[y - 1, x]
        let B[y, x] = scan[y] init A[H - 1, x] step A[y, x] + K * B[y + 1, x]
        let C[y, x] = scan[x] init B[y, 0] step B[y, x] + K * C[y, x - 1]
        Y[y, x] = scan[x] init C[y, W - 1] step C[y, x] + K * Y[y, x + 1]""",
    "summed_area": """let R[y, x] = scan[x] init X[y, 0] step R[y, x - 1] + X[y, x]
        Y[y, x] = scan[y] init R[0, x] step Y[y - 1, x] + R[y, x]""",
    "second_order": "Y[y, x] = scan[x] init X[y, 0] step X[y, x] + K * Y[y, x - 1] - (Y[y, x - 2] if x >= 2 else Z)",
    "sum_of_both": """let P[y in H, x in W] = scan[x] init X[y, x] step X[y, x] + K * P[y, x - 1]
        let Q[y in H, x in W] = scan[x] init X[y, x] step X[y, x] + K * Q[y, x + 1]
        Y[y, x] = P[y, x] + Q[y, x]""",
    "flipped": """let D[y, x] = scan[y] init X[0, x] step X[y, x] + K * D[y - 1, x]
        let R[y in H, x] = D[H - 1 - y, x]
        let U[y, x] = scan[y] init R[0, x] step R[y, x] + K * U[y - 1, x]
        Y[y in H, x] = U[H - 1 - y, x]""",
    "stages_around": """let B[y, x in W] = X[y, clamp(x - 1, 0, W - 1)] + X[y, x]
        let S[y, x] = scan[x] init B[y, 0] step B[y, x] + K * S[y, x - 1]
        Y[y, x] = max(S[y, x], B[y, x])""",
    "turned": """let S[x in W, y in H] = scan[x] init X[y, 0] step X[y, x] + K * S[x - 1, y]
        Y[y, x] = S[x, y]""",
    "neighbours": """let S[y, x in W] = scan[y] init X[0, x] step X[y, x] + K * (S[y - 1, x - 1] if x >= 1 else S[y - 1, x])
        Y[y, x] = S[y, x] + S[y, x]""",
    "read_twice": """let S[y, x] = scan[x] init X[y, 0] step X[y, x] + K * S[y, x - 1]
        let U[y, x] = scan[x] init S[y, W - 1] step S[y, x] + K * U[y, x + 1]
        Y[y, x] = S[y, x] - U[y, x]""",
    "planes": "Y[y, x] = scan[y] init X[0, x] step max(X[y, x], Y[y - 1, x])",
}
"""Bodies over an image `X` of `H` × `W`; `K` and `Z` are numbers of its type."""


def text(name: str, h: int, w: int, dtype: str) -> str:
    """A task `t` under the default space."""
    k, z = ("0.5", "0.0") if dtype == "f32" else ("3", "0")
    body = SCANS[name].replace("K", k).replace("Z", z)
    return f"""use std.cpu.{{default}}
compute c(X: {dtype}[H, W]) -> Y: {dtype}[H, W] {{
        {body}
}}
task t = c(H={h}, W={w}) with default
"""
