"""Validation of reductions whose terms have little that tells them apart, and of subscripts with quotients by open sizes.

Each schedule is proved, and with one word changed it is not.
"""

from __future__ import annotations

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.api import TaskFile
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.proof.equivalence.validate import Valid, validate
from tensorc_dsl.tuning.machine.host import host_target

INLINED = """
compute it(X: f32[N, C], y: i64[N]) -> loss: f32 {
    let m[n] = max[c] X[n, c]
    let L[n, c] = X[n, c] - m[n]
    loss = sum[n] (-L[n, clamp(y[n], 0, C - 1)] if y[n] != -100 else 0.0)
}
schedule s for it { compute_inline(L); let [n] = loss.loops; let [a, b] = split(n, [_, 4], partial=true); rfactor(loss, b) }
task t = it(N=5, C=3) with s
"""

GATHERED_MAXIMUM = """
compute it(K: f32[M * 4, D], at: i32[N, L]) -> m: f32[N] {
    let s[t, l, o in 4] = sum[d] K[clamp(at[t, l], 0, M - 1) * 4 + o, d]
    m[t] = max[l, o in 4] (s[t, l, o] if at[t, l] >= 0 else -1e30)
}
schedule s for it { let [t, l, o] = m.loops; split(o, [2, 2]) }
task t = it(N=2, D=3, M=3, L=2) with s
"""

SUM_OF_A_SCAN = """
compute it(X: i32[H, W]; steps: int = 4) -> Y: i32[H, W], lost: i32 {
    let S[t in steps + 1, y in H, x in W] = scan[t]
        init X[y, x]
        step S[t - 1, y, x] % 4
            + (S[t - 1, y - 1, x] / 4 if y >= 1 else 0)
            + (S[t - 1, y + 1, x] / 4 if y + 1 < H else 0)
            + (S[t - 1, y, x - 1] / 4 if x >= 1 else 0)
            + (S[t - 1, y, x + 1] / 4 if x + 1 < W else 0)
    Y[y, x] = S[steps, y, x]
    lost = (sum[y, x] X[y, x]) - (sum[y, x] Y[y, x])
}
schedule s for it { let [y, x] = Y.loops; split(x, [_, 2], partial=true) }
task t = it(H=4, W=5) with s
"""

EITHER_MASK = """
compute it(Q: f32[R, T, D], K: f32[T, D], V: f32[T, D]) -> Y: f32[R, T, D] {
    let s[r, t, u in T] = sum[d] Q[r, t, d] * K[u, d]
    let m[r, t] = max[u] (s[r, t, u] if u <= t and (u > t - 3 or u < 2) else -inf)
    let e[r, t, u] = exp(s[r, t, u] - m[r, t]) if u <= t and (u > t - 3 or u < 2) else 0.0
    let z[r, t] = sum[u] e[r, t, u]
    let o[r, t, d] = sum[u] e[r, t, u] * V[u, d]
    Y[r, t, d] = o[r, t, d] / z[r, t]
}
schedule s for it { let [r, t, d, u] = o.loops; split(u, [_, 4], partial=true) }
task t = it(R=2, T=7, D=3) with s
"""

WRITTEN_OUT = """
compute it(V: f32[4, W]) -> Y: f32[W] {
    let h[j in 7] = i32(sqrt(f64(9 - (j - 3) * (j - 3)) + 0.25))
    Y[x in W] = max[j in 7] V[clamp(h[j], 0, 3), clamp(x + j - 3, 0, W - 1)]
}
schedule s for it { compute_inline(h); expand_reduction(Y, most=49) }
task t = it(W=7) with s
"""

OPEN_GROUPS = """
compute it(X: f32[G * C, H], F: f32[G * O, C]; G: int = 2) -> Y: f32[G * O, H] {
    Y[o in G * O, h] = sum[c] X[o / O * C + c, h] * F[o, c]
}
schedule s for it { let [o, h, c] = Y.loops; let [h0, h1] = split(h, [_, 2], partial=true); reorder(h0, o, c, h1) }
task t = it(O=1..64, C=3, H=5) with s
"""

OPEN_REMAINDER = """
compute it(X: f32[N], Y: f32[N]) -> Z: f32[3 * N] {
    Z[t in 3 * N] = Y[t % N] * (X[t % N - 1] if t % N >= 1 else 0.0)
}
schedule s for it { let [t] = Z.loops; split(t, [_, 4], partial=true) }
task t = it(N=1..64) with s
"""


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("text", "word", "other"),
    [
        (INLINED, "- m[", "+ m["),
        (GATHERED_MAXIMUM, "* 4 + vo", "* 4 + 3 - vo"),
        (SUM_OF_A_SCAN, " % 4", " % 5"),
        (EITHER_MASK, "< 2", "< 1"),
        (WRITTEN_OUT, "index(9)", "index(3)"),
        (OPEN_GROUPS, "* 3 + vc", "* 3 + 2 - vc"),
        (OPEN_REMAINDER, "X[vt % N - 1]", "X[vt % N]"),
    ],
    ids=["inlined", "gathered maximum", "sum of a scan", "either mask", "written out", "open groups", "open remainder"],
)
def test_a_schedule_is_proved_and_another_program_is_not(text: str, word: str, other: str) -> None:
    checked = load_source(Source("hard.tsched", text))
    assert checked.diagnostics == ()
    task = TaskFile(checked, host_target(2))["t"]
    scheduled = task.sample(0).program
    assert isinstance(validate(task.program, scheduled), Valid)
    changed = format_program(scheduled).replace(word, other)
    assert changed != format_program(scheduled)
    assert not isinstance(validate(task.program, parse_program(Source("changed", changed))), Valid)
