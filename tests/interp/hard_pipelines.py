"""Pipelines whose stages are read in many pieces with holes: nothing was proved of some of their draws."""

from __future__ import annotations

# The lines are as the generator of random pipelines writes them.
# ruff: noqa: E501

HARD = {
    # Windows of windows of an image of twice the size, which is halved: every second column of some rows is read.
    "doubled": """
compute pipeline(X: f32[42, 46]) -> Y: f32[37, 43] {
    let S0[y in 42, x in 46] = 0.25 * X[y, x]
    let S1[y in 42, x in 46] = 0.5 * S0[y, x]
    let S2[y in 40, x in 45] = sum[i in 3, j in 2] S1[y + i, x + j] * 0.25
    let S3[y in 80, x in 90] = 0.5 * S2[y / 2, x / 2]
    let S4[y in 78, x in 89] = sum[i in 3, j in 2] S3[y + i, x + j] * 0.25
    let S5[y in 76, x in 88] = sum[i in 3, j in 2] S4[y + i, x + j] * 0.25
    let S6[y in 76, x in 88] = 0.5 * S5[y, x]
    Y[y in 37, x in 43] = 0.5 * S6[2 * y + 0, 2 * x + 1] + 0.5 * S6[2 * y + 2, 2 * x + 0] + 0.25 * S6[2 * y + 1, 2 * x + 2] + 0.5 * S4[2 * y + 0, 2 * x + 1] + 0.5 * S4[2 * y + 2, 2 * x + 0] + 1.5 * S4[2 * y + 1, 2 * x + 2]
}
""",
    # Two levels of a pyramid: every fourth element is read, in windows.
    "halved": """
compute pipeline(X: f32[56, 66]) -> Y: f32[10, 14] {
    let S0[y in 54, x in 65] = sum[i in 3, j in 2] X[y + i, x + j] * 0.25
    let S1[y in 52, x in 63] = 1.5 * S0[y + 0, x + 2] + 1.5 * S0[y + 2, x + 0]
    let S2[y in 25, x in 31] = 0.5 * S1[2 * y + 1, 2 * x + 0] + 0.5 * S1[2 * y + 0, 2 * x + 1] + 0.25 * S1[2 * y + 2, 2 * x + 1]
    let S3[y in 25, x in 31] = 0.5 * S2[clamp(y + 1 - 1, 0, 24), clamp(x + 1 - 1, 0, 30)] + 0.25 * S2[clamp(y + 0 - 1, 0, 24), clamp(x + 1 - 1, 0, 30)]
    let S4[y in 12, x in 15] = 0.5 * S3[2 * y + 0, 2 * x + 1] + 1.5 * S3[2 * y + 0, 2 * x + 2] + 1.5 * S2[2 * y + 0, 2 * x + 1] + 0.25 * S2[2 * y + 0, 2 * x + 2]
    Y[y in 10, x in 14] = sum[i in 3, j in 2] S4[y + i, x + j] * 0.25
}
""",
    # Borders of zeros and of repeated elements, and only half of what was doubled is read.
    "shrunk": """
compute pipeline(X: f32[47, 90]) -> Y: f32[21, 43] {
    let S0[y in 45, x in 88] = 0.25 * X[y + 1, x + 2] + 0.25 * X[y + 1, x + 0]
    let S1[y in 45, x in 88] = 0.25 * (S0[y - 2, x - 1] if y >= 2 and x >= 1 else 0)
    let S2[y in 45, x in 88] = 1.5 * S1[y, x]
    let S3[y in 43, x in 87] = sum[i in 3, j in 2] S2[y + i, x + j] * 0.25
    let S4[y in 43, x in 87] = 1.5 * S3[clamp(y + 0 - 1, 0, 42), clamp(x + 0 - 1, 0, 86)] + 1.5 * S1[clamp(y + 0 - 1, 0, 42), clamp(x + 0 - 1, 0, 86)]
    let S5[y in 21, x in 43] = 0.25 * S4[2 * y + 1, 2 * x + 2] + 0.25 * S3[2 * y + 1, 2 * x + 2]
    let S6[y in 42, x in 86] = 0.5 * S5[y / 2, x / 2]
    Y[y in 21, x in 43] = 0.25 * S6[clamp(y + 0 - 1, 0, 20), clamp(x + 0 - 1, 0, 42)] + 0.25 * S6[clamp(y + 0 - 1, 0, 20), clamp(x + 1 - 1, 0, 42)] + 0.25 * S6[clamp(y + 1 - 1, 0, 20), clamp(x + 2 - 1, 0, 42)] + 0.25 * S5[clamp(y + 0 - 1, 0, 20), clamp(x + 0 - 1, 0, 42)] + 1.5 * S5[clamp(y + 0 - 1, 0, 20), clamp(x + 1 - 1, 0, 42)] + 0.25 * S5[clamp(y + 1 - 1, 0, 20), clamp(x + 2 - 1, 0, 42)]
}
""",
    # Where a window ends at a border, more is read of the stage than the window needs.
    "cropped": """
compute pipeline(X: f32[54, 61]) -> Y: f32[21, 26] {
    let S0[y in 108, x in 122] = 0.5 * X[y / 2, x / 2]
    let S1[y in 106, x in 121] = sum[i in 3, j in 2] S0[y + i, x + j] * 0.25
    let S2[y in 52, x in 60] = 0.5 * S1[2 * y + 0, 2 * x + 0] + 0.5 * S1[2 * y + 0, 2 * x + 1] + 0.25 * S1[2 * y + 0, 2 * x + 2]
    let S3[y in 52, x in 60] = 0.5 * S2[clamp(y + 0 - 1, 0, 51), clamp(x + 1 - 1, 0, 59)] + 0.5 * S2[clamp(y + 2 - 1, 0, 51), clamp(x + 0 - 1, 0, 59)] + 0.25 * S2[clamp(y + 2 - 1, 0, 51), clamp(x + 2 - 1, 0, 59)] + 1.5 * S1[clamp(y + 0 - 1, 0, 51), clamp(x + 1 - 1, 0, 59)] + 1.5 * S1[clamp(y + 2 - 1, 0, 51), clamp(x + 0 - 1, 0, 59)] + 1.5 * S1[clamp(y + 2 - 1, 0, 51), clamp(x + 2 - 1, 0, 59)]
    let S4[y in 25, x in 29] = 0.5 * S3[2 * y + 1, 2 * x + 1] + 0.5 * S3[2 * y + 0, 2 * x + 2]
    let S5[y in 25, x in 29] = 0.5 * (S4[y - 1, x - 2] if y >= 1 and x >= 2 else 0) + 1.5 * (S2[y - 1, x - 2] if y >= 1 and x >= 2 else 0)
    let S6[y in 23, x in 28] = sum[i in 3, j in 2] S5[y + i, x + j] * 0.25
    Y[y in 21, x in 26] = 0.5 * S6[y + 2, x + 2] + 0.25 * S6[y + 1, x + 1]
}
""",
    # A scan that is read at thirds, mirrored, and around: isl's own test of a division gave up.
    "mirrored": """
compute pipeline(X: f32[31, 46]) -> Y: f32[30, 42] {
    let S0[y in 46, x in 46] = max(1.5 * X[clamp(y + 1 - 1, 0, 30), clamp(2 * x / 3 + 2 - 1, 0, 45)], 0.25 * (X[2 * y / 3 + 1 - 1, clamp(45 - 2 * x + 2, 0, 45)] if 0 <= 2 * y / 3 + 1 - 1 < 31 else 0))
    let S1[y in 46, x in 46] = scan[y] init S0[45, x] step 0.25 * S0[y, x] + 0.5 * S1[y + 1, x]
    let S2[y in 23, x in 44] = 1.5 * S1[y + 1, clamp(2 * x + 0 - 1, 0, 45)]
    let S3[y in 46, x in 42] = 0.25 * S2[min((y + 0 - 1) % 46, 45 - (y + 0 - 1) % 46), (3 * x + 2 - 1) % 44] + 1.5 * S2[min((y + 1 - 1) % 46, 45 - (y + 1 - 1) % 46), (3 * x + 1 - 1) % 44]
    let S4[y in 46, x in 42] = 0.5 * S3[(y + 0 - 1) % 46, min((3 * x / 2 + 2 - 1) % 84, 83 - (3 * x / 2 + 2 - 1) % 84)] + 0.5 * S3[(y + 1 - 1) % 46, min((3 * x / 2 + 0 - 1) % 84, 83 - (3 * x / 2 + 0 - 1) % 84)]
    Y[y in 30, x in 42] = 1.5 * S4[y + 0, clamp(2 * x / 3 + 2 - 1, 0, 41)] + 0.25 * S4[y + 2, clamp(2 * x / 3 + 2 - 1, 0, 41)] + 0.5 * S2[clamp(y + 0 - 1, 0, 22), clamp(2 * x / 3 + 2 - 1, 0, 43)] + 0.25 * S2[clamp(y + 2 - 1, 0, 22), clamp(2 * x / 3 + 2 - 1, 0, 43)]
}
""",
    # A scan along rows that is turned, and read in hundreds of pieces.
    "tiny": """
compute pipeline(X: f64[7, 11]) -> Y: f64[18, 32] {
    let S0[y in 7, x in 11] = scan[x] init X[y, 0] step 0.25 * X[y, x] + 0.5 * S0[y, x - 1]
    let S1[y in 10, x in 11] = 0.25 * f32(S0[min((y + 0 - 1) % 14, 13 - (y + 0 - 1) % 14), min((3 * x + 1 - 1) % 22, 21 - (3 * x + 1 - 1) % 22)]) + 0.5 * f32(S0[min((y + 0 - 1) % 14, 13 - (y + 0 - 1) % 14), min((3 * x + 0 - 1) % 22, 21 - (3 * x + 0 - 1) % 22)]) + 0.5 * f32((X[2 * y + 0 - 1, clamp(x + 1 - 1, 0, 10)] if 0 <= 2 * y + 0 - 1 < 7 else 0)) + 0.25 * f32((X[2 * y + 0 - 1, clamp(x + 0 - 1, 0, 10)] if 0 <= 2 * y + 0 - 1 < 7 else 1))
    let S2[y in 20, x in 16] = 0.5 * S1[clamp(2 * y + 2 - 1, 0, 9), clamp(10 - 3 * x / 2 + 2, 0, 10)] + 1.5 * S1[clamp(2 * y + 1 - 1, 0, 9), clamp(10 - 3 * x / 2 + 0, 0, 10)]
    Y[y in 18, x in 32] = 0.5 * f64((S2[clamp(3 * y / 2 + 2 - 1, 0, 19), 3 * x / 2 + 0 - 1] if 0 <= 3 * x / 2 + 0 - 1 < 16 else 0)) + 0.5 * f64((S2[clamp(3 * y / 2 + 0 - 1, 0, 19), 3 * x / 2 + 1 - 1] if 0 <= 3 * x / 2 + 1 - 1 < 16 else 0)) + 1.5 * f64((S2[y + 2 - 1, min((x + 0 - 1) % 32, 31 - (x + 0 - 1) % 32)] if 0 <= y + 2 - 1 < 20 else 1)) + 1.5 * f64((S2[y + 0 - 1, min((x + 1 - 1) % 32, 31 - (x + 1 - 1) % 32)] if 0 <= y + 0 - 1 < 20 else 1))
}
""",
    # A scan under a border of zeros: the scan was opened before it was known where it is read.
    "bordered": """
compute pipeline(X: f64[36, 73]) -> Y: f64[81, 16] {
    let S0[y in 54, x in 73] = 2 * saturate(i16, (X[y + 1 - 1, clamp(3 * x / 2 + 1 - 1, 0, 72)] if 0 <= y + 1 - 1 < 36 else 1)) + 1 * saturate(i16, (X[y + 1 - 1, clamp(3 * x / 2 + 2 - 1, 0, 72)] if 0 <= y + 1 - 1 < 36 else 1))
    let S1[y in 54, x in 73] = scan[y] init S0[53, x] step S0[y, x] / 2 + S1[y + 1, x] / 2
    let S2[y in 81, x in 73] = 2 * saturate(i32, (S1[y + 0 - 1, clamp(72 - 3 * x + 2, 0, 72)] if 0 <= y + 0 - 1 < 54 else 1)) + 2 * saturate(i32, (S1[y + 2 - 1, clamp(72 - 3 * x + 2, 0, 72)] if 0 <= y + 2 - 1 < 54 else 0)) + 1 * saturate(i32, (S1[y + 1 - 1, clamp(72 - 3 * x + 1, 0, 72)] if 0 <= y + 1 - 1 < 54 else 0))
    let S3[y in 54, x in 48] = 0.5 * f32(S2[clamp(80 - 3 * y / 2 + 0, 0, 80), clamp(2 * x / 3 + 2 - 1, 0, 72)]) + 0.5 * f32(S2[clamp(80 - 3 * y / 2 + 1, 0, 80), clamp(2 * x / 3 + 1 - 1, 0, 72)])
    let S4[y in 81, x in 48] = 0.5 * f64(S3[clamp(3 * y + 2 - 1, 0, 53), clamp(47 - 3 * x + 0, 0, 47)])
    let S5[y in 81, x in 24] = 1.5 * f32(S4[clamp(80 - y + 0, 0, 80), clamp(3 * x / 2 + 2 - 1, 0, 47)]) + 1.5 * f32(S4[(3 * y / 2 + 0 - 1) % 81, min((x / 2 + 2 - 1) % 96, 95 - (x / 2 + 2 - 1) % 96)])
    Y[y in 81, x in 16] = 1.5 * f64(S5[clamp(2 * y + 0 - 1, 0, 80), (2 * x + 1 - 1) % 24]) + 0.25 * f64(S5[clamp(2 * y + 2 - 1, 0, 80), (2 * x + 2 - 1) % 24]) + 0.5 * f64((S3[y + 0 - 1, x + 1] if 0 <= y + 0 - 1 < 54 else 0)) + 0.5 * f64((S3[y + 2 - 1, x + 2] if 0 <= y + 2 - 1 < 54 else 1))
}
""",
    # The last writes of a mirrored read are pieces with constraints that say nothing: isl ended the process.
    "reflected": """
compute pipeline(X: i16[51, 88]) -> R4: f32[28, 29], Y: f32[56, 85] {
    let S0[y in 34, x in 88] = 0.25 * f64((X[y + 2 - 1, min((3 * x / 2 + 1 - 1) % 176, 175 - (3 * x / 2 + 1 - 1) % 176)] if 0 <= y + 2 - 1 < 51 else 0)) + 0.25 * f64((X[(3 * y + 2 - 1) % 51, 2 * x + 1 - 1] if 0 <= 2 * x + 1 - 1 < 88 else 0))
    let S1[y in 32, x in 88] = 2 * saturate(i16, S0[y / 2 + 0, 2 * x / 3 + 0])
    let S2[y in 32, x in 58] = 2 * S1[2 * y / 3 + 1, min((2 * x + 2 - 1) % 176, 175 - (2 * x + 2 - 1) % 176)] + 3 * S1[2 * y / 3 + 0, min((2 * x + 0 - 1) % 176, 175 - (2 * x + 0 - 1) % 176)]
    let S3[y in 30, x in 58] = 1.5 * f32(S2[y + 0, clamp(2 * x / 3 + 2 - 1, 0, 57)]) + 0.5 * f32(S2[y + 1, clamp(2 * x / 3 + 0 - 1, 0, 57)]) + 0.5 * f32(S2[y + 2, clamp(2 * x / 3 + 0 - 1, 0, 57)])
    R4[y in 28, x in 29] = 1.5 * S3[min((y + 2 - 1) % 60, 59 - (y + 2 - 1) % 60), x / 2 + 2] + 0.5 * S3[min((y + 1 - 1) % 60, 59 - (y + 1 - 1) % 60), x / 2 + 2] + 0.25 * S3[clamp(y / 2 + 2 - 1, 0, 29), clamp(3 * x + 2 - 1, 0, 57)] + 0.25 * S3[clamp(y / 2 + 1 - 1, 0, 29), clamp(3 * x + 2 - 1, 0, 57)]
    let S5[y in 56, x in 58] = 0.5 * R4[min((y + 0 - 1) % 56, 55 - (y + 0 - 1) % 56), clamp(x + 2 - 1, 0, 28)] + 0.5 * f32(S2[clamp(y + 0 - 1, 0, 31), clamp(x + 2 - 1, 0, 57)])
    let S6[y in 28, x in 87] = 3 * saturate(u8, S5[y + 1, (x + 2 - 1) % 58])
    Y[y in 56, x in 85] = 0.5 * f32(S6[clamp(y + 0 - 1, 0, 27), x + 1]) + 1.5 * S5[min((y + 0 - 1) % 112, 111 - (y + 0 - 1) % 112), clamp(57 - x + 1, 0, 57)]
}
""",
    # A scan is read within a border only: beyond it, it would be read outside of what is written.
    "within": """
compute pipeline(X: f32[55, 50]) -> Y: f64[71, 30] {
    let S0[y in 53, x in 75] = min(0.25 * X[clamp(3 * y / 2 + 1 - 1, 0, 54), clamp(49 - 2 * x / 3 + 2, 0, 49)], 0.25 * (X[2 * y / 3 + 1, x + 2 - 1] if 0 <= x + 2 - 1 < 50 else 0))
    let S1[y in 51, x in 73] = sum[i in 3, j in 3] S0[y + i, x + j] * 0.25
    let S2[y in 51, x in 69] = max[i in 1, j in 5] S1[y + i, x + j] * 0.25
    let S3[y in 49, x in 67] = 1 * saturate(i16, S2[y + 1, x + 0])
    let S4[y in 49, x in 67] = scan[x] init S3[y, 0] step S3[y, x] / 2 + S4[y, x - 1] / 2
    let S5[y in 49, x in 65] = 3 * S4[(2 * y + 1 - 1) % 49, (2 * x + 0 - 1) % 67] + 1 * S4[(2 * y + 0 - 1) % 49, (2 * x + 1 - 1) % 67] + 3 * S4[(2 * y + 0 - 1) % 49, (2 * x + 2 - 1) % 67] + 1 * S4[min((3 * y + 1 - 1) % 98, 97 - (3 * y + 1 - 1) % 98), clamp(66 - x + 0, 0, 66)] + 1 * S4[min((3 * y + 0 - 1) % 98, 97 - (3 * y + 0 - 1) % 98), clamp(66 - x + 1, 0, 66)] + 1 * S4[min((3 * y + 0 - 1) % 98, 97 - (3 * y + 0 - 1) % 98), clamp(66 - x + 2, 0, 66)]
    let S6[y in 73, x in 32] = 1.5 * f64((S5[min((y + 0 - 1) % 98, 97 - (y + 0 - 1) % 98), 3 * x + 0 - 1] if 0 <= 3 * x + 0 - 1 < 65 else 1)) + 0.5 * f64((S5[min((y + 2 - 1) % 98, 97 - (y + 2 - 1) % 98), 3 * x + 2 - 1] if 0 <= 3 * x + 2 - 1 < 65 else 0))
    Y[y in 71, x in 30] = sum[i in 3, j in 3] S6[y + i, x + j] * 0.25
}
""",
}
