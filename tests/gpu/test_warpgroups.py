"""Instructions of warpgroups: kernels that multiply beside their threads are exact, and what is wrong with one is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.source import Source
from tests.gpu.kernels import emulated, ptx
from tests.gpu.test_tensor_cores import run

STDLIB = Path(__file__).parents[2] / "stdlib" / "intrinsics" / "cuda.tsched"

FEATURES = ("sm_80", "sm_90", "sm_90a")

HAND = """
program p(A: f16[128, 128], B: f16[128, 64], C: f32[128, 64]) {
    buffer As: f16[128, 64] in "shared" @("swizzle.0", 8)
    buffer Bs: f16[64, 64] in "shared" @("swizzle.0", 8)
    buffer Cf: f32[128, 64] in "wgmma.c"
    bound("block.x") for b in 1 {
        bound("warpgroup") for g in 2 {
            bound("warp") for w in 4 {
                bound("lane") for l in 32 {
                    for n in 8 {
                        for h in 2 {
                            for p in 2 {
                                block Cz {
                                    spatial vi in 128 = g * 64 + w * 16 + h * 8 + l / 4
                                    spatial vj in 64 = n * 8 + l % 4 * 2 + p
                                    Cf[vi, vj] = 0.0
                                }
                            }
                        }
                    }
                }
            }
        }
        for s in 2 {
            bound("thread.x") for t in 256 {
                for r in 4 {
                    vectorized for e in 8 {
                        block As {
                            spatial vi in 128 = r * 32 + t / 8; spatial vk in 64 = t % 8 * 8 + e
                            spatial vs in 2 = s
                            As[vi, vk] = A[vi, vs * 64 + vk]
                        }
                    }
                }
            }
            bound("thread.x") for t_1 in 256 {
                for r_1 in 2 {
                    vectorized for e_1 in 8 {
                        block Bs {
                            spatial vk in 64 = r_1 * 32 + t_1 / 8; spatial vj in 64 = t_1 % 8 * 8 + e_1
                            spatial vs in 2 = s
                            Bs[vk, vj] = B[vs * 64 + vk, vj]
                        }
                    }
                }
            }
            bound("warpgroup") for g_1 in 2 {
                for q in 4 {
                    tensorized for i in 64 @("intrinsic", "wgmma_m64n64k16_f16") {
                        tensorized for j in 64 {
                            tensorized for k in 16 {
                                block Cs {
                                    spatial vi in 128 = g_1 * 64 + i; spatial vj in 64 = j; reduce vk in 64 = q * 16 + k
                                    Cf[vi, vj] = Cf[vi, vj] + f32(As[vi, vk]) * f32(Bs[vk, vj])
                                }
                            }
                        }
                    }
                }
            }
        }
        bound("warpgroup") for g_2 in 2 {
            bound("warp") for w_1 in 4 {
                bound("lane") for l_1 in 32 {
                    for n_1 in 8 {
                        for h_1 in 2 {
                            vectorized for p_1 in 2 {
                                block C {
                                    spatial vi in 128 = g_2 * 64 + w_1 * 16 + h_1 * 8 + l_1 / 4
                                    spatial vj in 64 = n_1 * 8 + l_1 % 4 * 2 + p_1
                                    C[vi, vj] = Cf[vi, vj]
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
"""


def hand(*changes: tuple[str, str]) -> Program:
    text = HAND
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return parse_program(Source("p.tsched", STDLIB.read_text(encoding="utf-8") + text))


def test_a_kernel_by_hand_is_right() -> None:
    program = hand()
    found = lower_device(program, FEATURES)
    assert found.kernels[0].threads == 256
    assert [(b.name, b.size) for b in found.kernels[0].local] == [("Cf", 32)]
    assert run(program, found) == ("", True)
