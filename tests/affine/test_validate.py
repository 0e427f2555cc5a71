"""Whole-program validation: right pairs of programs, and pairs broken by hand with the facts that refute them."""

from __future__ import annotations

import pytest

from tensorc_dsl.affine.validate import Invalid, Report, Unproved, Valid, validate
from tensorc_dsl.diagnostic import render
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.source import Source


def program(text: str) -> Program:
    made = parse_program(Source("test", text))
    verify(made)
    return made


def compared(original: str, scheduled: str) -> Report:
    return validate(program(original), program(scheduled))


MATMUL = """
program mm(A: f32[10, 6], B: f32[6, 8], C: f32[10, 8]) {
    for i in 10, j in 8, k in 6 {
        block C {
            spatial vi in 10 = i
            spatial vj in 8 = j
            reduce vk in 6 = k
            init { C[vi, vj] = 0.0 }
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        }
    }
}
"""

TILED = """
program mm(A: f32[10, 6], B: f32[6, 8], C: f32[10, 8]) {
    buffer L: f32[10, 8] in "local"
    buffer P: f32[2, 6, 4]
    for p0 in 2, p1 in 6, p2 in 4 {
        block P { spatial v0 in 2 = p0; spatial v1 in 6 = p1; spatial v2 in 4 = p2
            P[v0, v1, v2] = B[v1, v0 * 4 + v2]
        }
    }
    parallel for i0 in 3 {
        for j0 in 2 {
            for i1 in 4 {
                vectorized for j1 in 4 {
                    block Z {
                        spatial vi in 10 = i0 * 4 + i1
                        spatial vj in 8 = j0 * 4 + j1
                        where i0 * 4 + i1 < 10
                        L[vi, vj] = 0.0
                    }
                }
            }
            for k0 in 3 {
                for i2 in 4, k1 in 2 {
                vectorized for j2 in 4 {
                    block C {
                        spatial vi in 10 = i0 * 4 + i2
                        spatial vj in 8 = j0 * 4 + j2
                        reduce vk in 6 = k0 * 2 + k1
                        where i0 * 4 + i2 < 10
                        L[vi, vj] = L[vi, vj] + A[vi, vk] * P[vj / 4, vk, vj % 4]
                    }
                }
                }
            }
            for i3 in 4 {
                vectorized for j3 in 4 {
                    block W {
                        spatial vi in 10 = i0 * 4 + i3
                        spatial vj in 8 = j0 * 4 + j3
                        where i0 * 4 + i3 < 10
                        C[vi, vj] = L[vi, vj]
                    }
                }
            }
        }
    }
}
"""

BREAKS = {
    "guard of the update dropped": ("k0 * 2 + k1\n                        where i0 * 4 + i2 < 10\n", "k0 * 2 + k1\n"),
    "guard too narrow": ("where i0 * 4 + i3 < 10", "where i0 * 4 + i3 < 9"),
    "init too narrow": ("where i0 * 4 + i1 < 10", "where i0 * 4 + i1 < 9"),
    "update too narrow": ("where i0 * 4 + i2 < 10", "where i0 * 4 + i2 < 9"),
    "index shifted": ("A[vi, vk] * P", "A[vi, (vk + 1) % 6] * P"),
    "layout read wrongly": ("P[vj / 4, vk, vj % 4]", "P[vj % 2, vk, vj % 4]"),
    "packed wrongly": ("B[v1, v0 * 4 + v2]", "B[v1, v2 * 2 + v0]"),
    "packed too late": ("for p0 in 2, p1 in 6", "for p0 in 2, p1 in 5"),
    "a term less": ("for k0 in 3", "for k0 in 2"),
    "terms twice": ("reduce vk in 6 = k0 * 2 + k1", "reduce vk in 6 = k0 * 2"),
    "terms overlap": ("reduce vk in 6 = k0 * 2 + k1", "reduce vk in 6 = k0 + k1"),
    "update run twice": ("for i2 in 4", "for again in 2, i2 in 4"),
    "wrong identity": ("L[vi, vj] = 0.0", "L[vi, vj] = 1.0"),
    "wrong operator": ("L[vi, vj] + A[vi, vk] * P", "L[vi, vj] + A[vi, vk] + P"),
    "wrong reduction": ("L[vi, vj] + A[vi, vk] * P", "max(L[vi, vj], A[vi, vk] * P") ,
    "wrong result": ("C[vi, vj] = L[vi, vj]", "C[vi, vj] = L[vi, vj] + 1.0"),
    "transposed result": ("C[vi, vj] = L[vi, vj]", "C[vi, 7 - vj] = L[vi, vj]"),
    "race on a reduction": ("for k0 in 3 {", "parallel for k0 in 3 {"),
    "race on a cache": ("in \"local\"", ""),
}


def broken(name: str) -> Report:
    old, new = BREAKS[name]
    assert old in TILED
    text = TILED.replace(old, new)
    if name == "wrong reduction":
        text = text.replace("P[vj / 4, vk, vj % 4]\n", "P[vj / 4, vk, vj % 4])\n")
    return validate(program(MATMUL), parse_program(Source("test", text)))


def test_tiled_product() -> None:
    assert compared(MATMUL, TILED) == Valid()
    assert compared(TILED, TILED) == Valid()


if __name__ == "__main__":
    for n in BREAKS:
        r = broken(n)
        print("==", n)
        print(type(r).__name__ if isinstance(r, Valid) else render(r.diagnostic))
