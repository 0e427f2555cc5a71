"""Shapes of code that are easy to get wrong: guards, masks, tails, strides, gathers, padding, reductions, storage."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import check, program, run


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(np.float32)


@pytest.mark.corpus
@pytest.mark.parametrize("n", [1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 97, 128, 200, 333])
def test_a_vector_loop_of_any_length(n: int) -> None:
    p = program(f"""
program f(A: f32[{n}], C: f32[{n}]) {{
    vectorized for i in {n} {{
        block C {{
            spatial v in {n} = i
            C[v] = A[v] * 2.0 + 1.0
        }}
    }}
}}
""")
    check(p, {"A": values(n)})


@pytest.mark.parametrize("kind", ["", "vectorized ", "unrolled ", "parallel "])
@pytest.mark.parametrize("n", [5, 16, 37])
def test_a_guard_in_every_kind_of_loop(kind: str, n: int) -> None:
    p = program(f"""
program f(A: f32[{n}], C: f32[{n}]) {{
    for o in {-(-n // 8)} {{
        {kind}for i in 8 {{
            block C {{
                spatial v in {n} = o * 8 + i
                where o * 8 + i < {n}
                C[v] = A[v] + 1.0
            }}
        }}
    }}
}}
""")
    check(p, {"A": values(n)})


@pytest.mark.parametrize("n", [9, 16, 40])
def test_a_guard_that_differs_between_lanes_is_a_mask(n: int) -> None:
    # The lower triangle: no cut of either loop makes the guard constant. The upper one must keep its poison.
    p = program(f"""
program f(A: f32[{n}, {n}], x: f32[{n}], C: f32[{n}, {n}]) {{
    for i in {n} {{
        vectorized for j in {n} {{
            block C {{
                spatial vi in {n} = i
                spatial vj in {n} = j
                where j <= i
                C[vi, vj] = A[vi, vj] * x[vi] + x[vj]
            }}
        }}
    }}
}}
""")
    a, x = values(n, n), values(n, seed=1)
    got = run(p, {"A": a, "x": x})["C"]
    want = a * x[:, None] + x[None, :]
    lower = np.tril(np.ones((n, n), bool))
    np.testing.assert_allclose(got[lower], want[lower], rtol=1e-6)
    assert np.isnan(got[~lower]).all()


@pytest.mark.parametrize("n", [5, 16, 35])
def test_strided_and_gathered_accesses(n: int) -> None:
    p = program(f"""
program f(A: f32[{3 * n}], x: f32[{n}], C: f32[{2 * n}], D: f32[{n}], E: f32[{n}]) {{
    vectorized for i in {n} {{
        block C {{
            spatial v in {n} = i
            C[v * 2] = A[v * 3]
            C[v * 2 + 1] = A[v * 3 + 1] + x[v / 3]
        }}
    }}
    vectorized for k in {n} {{
        block D {{
            spatial v in {n} = k
            D[v] = x[{n - 1} - v]
        }}
    }}
    vectorized for m in {n} {{
        block E {{
            spatial v in {n} = m
            E[v / 4 * 4 + v % 4] = x[v % 4]
        }}
    }}
}}
""")
    if n < 4:
        pytest.skip("x is shorter than what E reads")
    check(p, {"A": values(3 * n), "x": values(n, seed=1)})


def test_a_masked_store_with_a_stride_and_one_by_division() -> None:
    p = program("""
program f(A: f32[20], C: f32[60], D: f32[20]) {
    for o in 20 {
        vectorized for i in 20 {
            block C {
                spatial vo in 20 = o
                spatial vi in 20 = i
                where i <= o and o < i + 1
                C[vi * 3] = A[vi]
                D[vi / 5 * 5 + vi % 5] = A[19 - vi]
            }
        }
    }
}
""")
    a = values(20)
    got = run(p, {"A": a})
    np.testing.assert_array_equal(got["C"][::3], a)
    assert np.isnan(got["C"][1::3]).all()
    np.testing.assert_array_equal(got["D"], a[::-1])


@pytest.mark.corpus
@pytest.mark.parametrize("kind", ["", "vectorized ", "unrolled ", "parallel "])
@pytest.mark.parametrize("n", [3, 18, 33])
def test_padding_never_reads_outside(kind: str, n: int) -> None:
    p = program(f"""
program f(X: f32[{n}], C: f32[{n + 4}]) {{
    {kind}for i in {n + 4} {{
        block C {{
            spatial v in {n + 4} = i
            C[v] = X[v - 2] if v >= 2 and v < {n + 2} else 0.0
        }}
    }}
}}
""")
    check(p, {"X": values(n)})


@pytest.mark.parametrize("n", [4, 19])
def test_a_choice_between_loads_by_data(n: int) -> None:
    p = program(f"""
program f(X: f32[{n}], i: i32[{n}], C: f32[{n}], D: f32[{n}]) {{
    vectorized for a in {n} {{
        block C {{
            spatial v in {n} = a
            C[v] = X[v + {n - 1}] if i[v] > 0 and v < 1 else X[v] * 2.0
        }}
    }}
    for b in {n} {{
        block D {{
            spatial v in {n} = b
            D[v] = X[v + 1] if v < {n - 1} and i[v] > 0 else exp(X[v])
        }}
    }}
}}
""")
    check(p, {"X": values(n), "i": np.arange(n, dtype=np.int32) % 3 - 1})


@pytest.mark.parametrize(("op", "unit"), [("max", "-inf"), ("min", "inf")])
def test_min_and_max_reductions_with_their_identity(op: str, unit: str) -> None:
    p = program(f"""
program f(X: f32[7, 13], C: f32[7]) {{
    parallel for i in 7 {{
        for k_0 in 4, k_1 in 4 {{
            block C {{
                spatial vi in 7 = i
                reduce vk in 13 = k_0 * 4 + k_1
                where k_0 * 4 + k_1 < 13
                init {{ C[vi] = {unit} }}
                C[vi] = {op}(C[vi], X[vi, vk])
            }}
        }}
    }}
}}
""")
    x = values(7, 13) - 3.0  # all negative: an initial 0 would show in the maximum
    check(p, {"X": x})
    x[3, 5] = np.nan
    assert np.isnan(run(p, {"X": x})["C"][3])


def test_an_initialiser_stays_under_its_condition_where_it_cannot_move() -> None:
    # The loop runs spatial and reduction iterators at once; 6 does not divide it apart.
    p = program("""
program f(X: f32[5, 6], C: f32[5]) {
    for f in 10, k in 3 {
        block C {
            spatial vi in 5 = (f * 3 + k) / 6
            reduce vk in 6 = (f * 3 + k) % 6
            init { C[vi] = 10.0 }
            C[vi] = C[vi] + X[vi, vk]
        }
    }
}
""")
    check(p, {"X": values(5, 6)})


@pytest.mark.parametrize("tail", [0, 3])
def test_a_local_buffer_with_a_negative_corner(tail: int) -> None:
    # Trap 17: the part of P that a tile needs starts at 4*o - 1; in the first tile that is -1.
    n = 16 + tail
    tiles = -(-n // 4)
    p = program(f"""
program f(X: f32[{n}], C: f32[{n}]) {{
    buffer P: f32[{n}] in "local"
    for o in {tiles} {{
        for r in 6 {{
            block P {{
                spatial v in {n} = o * 4 + r - 1
                where o * 4 + r - 1 >= 0
                where o * 4 + r - 1 < {n}
                P[v] = X[v] * 3.0
            }}
        }}
        for i in 4 {{
            block C {{
                spatial v in {n} = o * 4 + i
                where o * 4 + i < {n}
                C[v] = (P[v - 1] if v >= 1 else 0.0) + P[v] + (P[v + 1] if v < {n - 1} else 0.0)
            }}
        }}
    }}
}}
""")
    check(p, {"X": values(n)})


def test_a_buffer_private_to_each_lane() -> None:
    p = program("""
program f(X: f32[21, 5], C: f32[21]) {
    buffer s: f32[1] in "local"
    vectorized for i in 21 {
        for k in 5 {
            block s {
                spatial v in 1 = 0
                spatial vi in 21 = i
                reduce vk in 5 = k
                init { s[v] = 0.0 }
                s[v] = s[v] + X[vi, vk]
            }
        }
        block C {
            spatial vi in 21 = i
            C[vi] = s[0] * 2.0
        }
    }
}
""")
    check(p, {"X": values(21, 5)})


def test_large_scratch_in_and_around_parallel_loops() -> None:
    p = program("""
program f(X: f32[6, 9000], C: f32[6, 9000]) {
    buffer P: f32[6, 9000]
    buffer Q: f32[6, 9000]
    parallel for i in 6 {
        vectorized for j in 9000 {
            block P {
                spatial vi in 6 = i
                spatial vj in 9000 = j
                P[vi, vj] = X[vi, vj] + 1.0
            }
        }
    }
    parallel for i_1 in 6 {
        for j_1 in 9000 {
            block Q {
                spatial vi in 6 = i_1
                spatial vj in 9000 = j_1
                Q[vi, vj] = P[vi, 8999 - vj] * 2.0
            }
        }
        for j_2 in 9000 {
            block C {
                spatial vi in 6 = i_1
                spatial vj in 9000 = j_2
                C[vi, vj] = Q[vi, vj] - P[vi, vj]
            }
        }
    }
}
""")
    x = values(6, 9000)
    want = (x[:, ::-1] + 1) * 2 - (x + 1)
    for threads in (1, 2, 3):
        np.testing.assert_allclose(run(p, {"X": x}, threads)["C"], want, rtol=1e-5)


def test_a_buffer_that_outlives_an_iteration_is_not_private_to_it() -> None:
    # s[t] is read one iteration after it is written.
    p = program("""
program f(X: f32[9], C: f32[9]) {
    buffer s: f32[10]
    block first {
        spatial v in 1 = 0
        s[v] = 0.5
    }
    for t in 9 {
        block s {
            spatial v in 9 = t
            s[v + 1] = s[v] + X[v]
        }
        block C {
            spatial v in 9 = t
            C[v] = s[v + 1] - s[v]
        }
    }
}
""")
    check(p, {"X": values(9)})


def test_a_part_written_once_and_read_in_every_iteration_survives() -> None:
    p = program("""
program f(X: f32[4], C: f32[3, 4]) {
    buffer s: f32[4] in "global"
    for t in 3 {
        for i in 4 {
            block s {
                spatial v in 4 = i
                where t < 1
                s[v] = X[v] + 1.0
            }
        }
        for j in 4 {
            block C {
                spatial vt in 3 = t
                spatial v in 4 = j
                C[vt, v] = s[v]
            }
        }
    }
}
""")
    x = values(4)
    np.testing.assert_array_equal(run(p, {"X": x})["C"], np.tile(x + 1, (3, 1)))


def test_more_tasks_than_iterations_and_threads_in_a_serial_loop() -> None:
    p = program("""
program f(X: f32[3, 2], C: f32[3, 2]) {
    for o in 3 {
        parallel for i in 2 {
            block C {
                spatial vo in 3 = o
                spatial vi in 2 = i
                C[vo, vi] = X[vo, vi] + 1.0
            }
        }
    }
}
""")
    for threads in (1, 2, 7):
        check(p, {"X": values(3, 2)}, threads=threads)
