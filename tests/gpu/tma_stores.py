"""Kernels by hand whose results TMA stores, for tests."""

from __future__ import annotations

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program

STORE = """
intrinsic put
    desc (D: f32[8, COLUMNS] in "global.tile", S: f32[8, COLUMNS] in "shared.tile") { D[i, j] = S[i, j] }
    layout "global.tile" (i, j) -> (line: i, element: j, swizzle: 0)
    layout "shared.tile" (i, j) -> (line: i, element: j, swizzle: SWIZZLE)
    lower cuda requires "sm_90a" asm "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [D], [S];"
"""

HAND = """
program p(A: f32[ROWS, WIDTH], C: f32[ROWS, WIDTH]) {
    buffer T: f32[16, COLUMNS] in "shared" SWIZZLED
    bound("block.x") for b in 3 {
        for s in 2 {
            bound("thread.x") for t in 64 {
                for q in COLUMNS / 4 {
                    block T {
                        spatial vi in 48 = b * 16 + t / 4; spatial vj in 2 * COLUMNS = s * COLUMNS + t % 4 * (COLUMNS / 4) + q
                        where b * 16 + t / 4 < ROWS and s * COLUMNS + t % 4 * (COLUMNS / 4) + q < WIDTH
                        T[vi % 16, vj % COLUMNS] = A[vi, vj] * 2.0
                    }
                }
            }
            for r in 2 {
                tensorized for i in 8 @("intrinsic", "put") {
                    tensorized for j in COLUMNS {
                        block C {
                            spatial vi in 48 = b * 16 + r * 8 + i; spatial vj in 2 * COLUMNS = s * COLUMNS + j
                            where b * 16 + r * 8 + i < ROWS and s * COLUMNS + j < WIDTH
                            C[vi, vj] = T[vi % 16, vj % COLUMNS]
                        }
                    }
                }
            }
        }
    }
}
"""


def hand(
    swizzle: int = 128, rows: int = 48, width: int | None = None, changes: tuple[tuple[str, str], ...] = ()
) -> Program:
    """Twice an array, in two tiles of columns for each of three blocks. Lines have the bytes of the swizzle."""
    columns = max(swizzle, 16) // 4
    text = STORE + HAND
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    text = text.replace("SWIZZLED", '@("swizzle.0", 4)' if swizzle else "").replace("SWIZZLE", str(swizzle))
    text = text.replace("(COLUMNS / 4)", str(columns // 4)).replace("COLUMNS / 4", str(columns // 4))
    text = text.replace("2 * COLUMNS", str(2 * columns)).replace("COLUMNS", str(columns))
    text = text.replace("ROWS", str(rows)).replace("WIDTH", str(2 * columns if width is None else width))
    return parse_program(Source("p.tsched", text))
