"""Lowered programs, as whole texts."""

from __future__ import annotations

import pytest

from tensorc_dsl.backend.llvm.lower.passes import lower_cpu
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.expr import Binary, Dim, Var, index
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Block, Buffer, For, Iter, IterKind, Program, Store
from tensorc_dsl.lower.flat import LowerError, format_kernel
from tests.programs import load


def lowered(text: str) -> str:
    return format_kernel(lower_cpu(parse_program(Source("test.tsched", text))))


def test_tails_are_cut_off_and_the_tile_lives_in_registers() -> None:
    # 20 rows by tiles of 8: two full ones and one of 4. The copy back is vectorized and unrolled with the tile.
    assert (
        lowered("""
program f(A: f32[20, 9], B: f32[9, 16], C: f32[20, 16]) {
    buffer L: f32[20, 16] in "local"
    for i0 in 3 {
        for k in 9 {
            unrolled for i1 in 8 {
                vectorized for j in 16 {
                    block L {
                        spatial vi in 20 = i0 * 8 + i1
                        spatial vj in 16 = j
                        reduce vk in 9 = k
                        where i0 * 8 + i1 < 20
                        init { L[vi, vj] = 0.0 }
                        L[vi, vj] = L[vi, vj] + A[vi, vk] * B[vk, vj]
                    }
                }
            }
        }
        for a in 8, b in 16 {
            block C {
                spatial vi in 20 = i0 * 8 + a
                spatial vj in 16 = b
                where i0 * 8 + a < 20
                C[vi, vj] = L[vi, vj]
            }
        }
    }
}
""")
        == """\
kernel f(A: f32[20, 9], B: f32[9, 16], out C: f32[20, 16]) {
    for i0 in 0 .. 2 {
        with L: f32[128] in "stack" {
            unrolled for i1 in 0 .. 8 {
                vectorized for j in 0 .. 16 {
                    L[i1 * 16 + j] = 0.0
                }
            }
            for k in 0 .. 9 {
                unrolled for i1 in 0 .. 8 {
                    vectorized for j in 0 .. 16 {
                        L[i1 * 16 + j] = L[i1 * 16 + j] + A[i0 * 72 + i1 * 9 + k] * B[k * 16 + j]
                    }
                }
            }
            unrolled for a in 0 .. 8 {
                vectorized for b in 0 .. 16 {
                    C[i0 * 128 + a * 16 + b] = L[a * 16 + b]
                }
            }
        }
    }
    with L: f32[128] in "stack" {
        unrolled for i1 in 0 .. 4 {
            vectorized for j in 0 .. 16 {
                L[i1 * 16 + j] = 0.0
            }
        }
        for k in 0 .. 9 {
            unrolled for i1 in 0 .. 4 {
                vectorized for j in 0 .. 16 {
                    L[i1 * 16 + j] = L[i1 * 16 + j] + A[i1 * 9 + k + 144] * B[k * 16 + j]
                }
            }
        }
        unrolled for a in 0 .. 4 {
            vectorized for b in 0 .. 16 {
                C[a * 16 + b + 256] = L[a * 16 + b]
            }
        }
    }
}
"""
    )


def test_fused_loops_come_apart_and_parallel_ones_join() -> None:
    assert (
        lowered("""
program f(X: f32[6, 10], C: f32[6, 10]) {
    parallel for f in 60 {
        block C {
            spatial vi in 6 = f / 10
            spatial vj in 10 = f % 10
            C[vi, vj] = X[vi, vj] + 1.0
        }
    }
}
""")
        == """\
kernel f(X: f32[6, 10], out C: f32[6, 10]) {
    parallel for f_0 in 6, f_1 in 10 {
        C[f_0 * 10 + f_1] = X[f_0 * 10 + f_1] + 1.0
    }
}
"""
    )


def test_a_guard_stands_as_far_out_as_it_can() -> None:
    # The bound on i * j is not linear, so nothing can be cut; it does not need k.
    assert (
        lowered("""
program f(X: f32[4, 4, 4], C: f32[4, 4, 4]) {
    for i in 4, j in 4, k in 4 {
        block C {
            spatial vi in 4 = i
            spatial vj in 4 = j
            spatial vk in 4 = k
            where i * j < 5
            C[vi, vj, vk] = X[vi, vj, vk]
        }
    }
}
""")
        == """\
kernel f(X: f32[4, 4, 4], out C: f32[4, 4, 4]) {
    for i in 0 .. 4 {
        for j in 0 .. 4 {
            if i * j < 5 {
                for k in 0 .. 4 {
                    C[i * 16 + j * 4 + k] = X[i * 16 + j * 4 + k]
                }
            }
        }
    }
}
"""
    )


def test_the_part_of_a_producer_that_a_tile_needs_is_counted_from_its_corner() -> None:
    # Trap 17: the part starts at 4 * o - 1.
    text = lowered("""
program f(X: f32[16], C: f32[16]) {
    buffer P: f32[16] in "local"
    for o in 4 {
        for r in 6 {
            block P {
                spatial v in 16 = o * 4 + r - 1
                where o * 4 + r - 1 >= 0
                where o * 4 + r - 1 < 16
                P[v] = X[v] * 3.0
            }
        }
        for i in 4 {
            block C {
                spatial v in 16 = o * 4 + i
                C[v] = P[v] + (P[v - 1] if v >= 1 else 0.0)
            }
        }
    }
}
""")
    assert 'with P: f32[6] in "stack"' in text
    assert "P[i + 1] + (P[i]" in text


def test_a_loop_around_lanes_that_lie_apart_is_not_unrolled_as_if_they_were_one_step() -> None:
    # Each of the 8 lanes of T is loaded by itself: 4 · 8 steps are more than 16. Those of C are 4 steps.
    text = lowered("""
program f(A: f32[8, 4], T: f32[4, 8], C: f32[4, 8]) @("unroll.max_step", 16) {
    for i in 4 {
        vectorized for j in 8 {
            block T {
                spatial vi in 4 = i
                spatial vj in 8 = j
                T[vi, vj] = A[vj, vi]
            }
        }
    }
    for i_1 in 4 {
        vectorized for j_1 in 8 {
            block C {
                spatial vi in 4 = i_1
                spatial vj in 8 = j_1
                C[vi, vj] = T[vi, vj] * 2.0
            }
        }
    }
}
""")
    assert "    for i in 0 .. 4 {" in text
    assert "    unrolled for i_1 in 0 .. 4 {" in text


def test_the_work_of_a_last_tile_is_not_unrolled() -> None:
    # Whole vectors of columns, and a last one with masks, each around the sum of 16 terms.
    text = lowered("""
program f(A: f32[16], B: f32[16, N], C: f32[N]) where N in 1..1000 @("unroll.max_step", 64) {
    for j0 in (N + 7) / 8 {
        for k in 16 {
            vectorized for j1 in 8 {
                block C {
                    spatial vj in N = j0 * 8 + j1
                    reduce vk in 16 = k
                    where j0 * 8 + j1 < N
                    init { C[vj] = 0.0 }
                    C[vj] = C[vj] + A[vk] * B[vk, vj]
                }
            }
        }
    }
}
""")
    assert text.count("unrolled for k in 0 .. 16 {") == 1
    assert text.count("for k in 0 .. 16 {") == 2


def test_an_unrolled_nest_of_too_many_stores_keeps_its_outermost_loop() -> None:
    # 8 vectors for each row: 64 rows are all that LLVM can be asked to take at once. Columns of T are stored lane by lane.
    text = lowered("""
program f(A: f32[128, 128], C: f32[128, 128], D: f32[64, 128], T: f32[128, 128]) {
    unrolled for i in 128 {
        vectorized for j in 128 {
            block C {
                spatial vi in 128 = i
                spatial vj in 128 = j
                C[vi, vj] = A[vi, vj]
            }
        }
    }
    unrolled for i_1 in 64 {
        vectorized for j_1 in 128 {
            block D {
                spatial vi in 64 = i_1
                spatial vj in 128 = j_1
                D[vi, vj] = A[vi, vj]
            }
        }
    }
    unrolled for i_2 in 128 {
        vectorized for j_2 in 16 {
            block T {
                spatial vi in 128 = i_2
                spatial vj in 16 = j_2
                T[vj, vi] = A[vi, vj]
            }
        }
    }
}
""")
    assert "\n    for i in 0 .. 128 {" in text
    assert "\n    unrolled for i_1 in 0 .. 64 {" in text
    assert "\n    for i_2 in 0 .. 128 {" in text


@pytest.mark.parametrize("scope", ["global", "local"])
def test_sums_that_several_iterations_build_stay_outside(scope: str) -> None:
    text = lowered(f"""
program f(X: f32[3, 4], C: f32[4]) {{
    buffer s: f32[4] in "{scope}"
    for k in 3, i in 4 {{
        block s {{
            spatial vi in 4 = i
            reduce vk in 3 = k
            init {{ s[vi] = 0.0 }}
            s[vi] = s[vi] + X[vk, vi]
        }}
    }}
    for j in 4 {{
        block C {{
            spatial vj in 4 = j
            C[vj] = s[vj]
        }}
    }}
}}
""")
    assert text.splitlines()[1] == '    with s: f32[4] in "stack" {'


def test_a_size_that_no_shape_tells_is_refused() -> None:
    n = Dim("N", 1, 9)
    i = Iter("vi", IterKind.SPATIAL, n, Var("i"))
    block = Block("C", (i,), (Store("C", (Var("vi"),), load("A", Var("vi"))),))
    half = Binary("/", n, index(2))
    params = tuple(Buffer(name, load("A").dtype, (half,)) for name in "AC")
    with pytest.raises(LowerError, match="the shapes of the arguments of f do not tell N"):
        lower_cpu(Program("f", params, (), (For("i", n, (block,)),), (n,)))
    assert lower_cpu(Program("f", (Buffer("C", load("A").dtype, (index(1),)),), (), ())).body == ()


def test_what_follows_from_constants_is_prepared() -> None:
    assert (
        lowered("""
program p(X: f32[8], W: const f32[8], C: f32[8]) {
    buffer P: f32[8]
    for i in 8 {
        block P {
            spatial vi in 8 = i
            P[vi] = W[7 - vi]
        }
    }
    for j in 8 {
        block C {
            spatial vj in 8 = j
            C[vj] = X[vj] * P[vj] + W[vj]
        }
    }
}
""")
        == """\
kernel p(X: f32[8], W: const f32[8], out C: f32[8]) {
    prepare P: f32[8] {
        for i in 0 .. 8 {
            P[i] = W[7 - i]
        }
    }
    for j in 0 .. 8 {
        C[j] = X[j] * P[j] + W[j]
    }
}
"""
    )


def test_what_a_reducer_needs_after_it_is_replaced_is_kept_by_each_instance() -> None:
    # The steps are outside of the loops that run at once: one element for all of them would be shared.
    found = lowered("""
program f(X: f32[9, 8], Y: f32[9, 8], R: f32[8], I: f32[8]) {
    for k in 9 {
        parallel for a in 2 {
            vectorized for b in 4 {
                block R @("reducer", "times((a, b), (c, d)) = (a * c - b * d, a * d + b * c) identity (1.0, 0.0)") {
                    spatial vi in 8 = a * 4 + b
                    reduce vk in 9 = k
                    init { R[vi] = 1.0; I[vi] = 0.0 }
                    R[vi] = R[vi] * X[vk, vi] - I[vi] * Y[vk, vi]
                    I[vi] = R[vi] * Y[vk, vi] + I[vi] * X[vk, vi]
                }
            }
        }
    }
}
""")
    assert (
        found
        == """\
kernel f(X: f32[9, 8], Y: f32[9, 8], out R: f32[8], out I: f32[8]) {
    parallel for a in 2 {
        vectorized for b in 0 .. 4 {
            R[a * 4 + b] = 1.0
            I[a * 4 + b] = 0.0
        }
    }
    for k in 0 .. 9 {
        parallel for a in 2 {
            vectorized for b in 0 .. 4 {
                with R_before: f32[4] in "stack" {
                    R_before[b] = R[a * 4 + b]
                    R[a * 4 + b] = R_before[b] * X[k * 8 + a * 4 + b] - I[a * 4 + b] * Y[k * 8 + a * 4 + b]
                    I[a * 4 + b] = R_before[b] * Y[k * 8 + a * 4 + b] + I[a * 4 + b] * X[k * 8 + a * 4 + b]
                }
            }
        }
    }
}
"""
    )
