"""`sample_compute_location`: exactly the places at which `compute_at` is accepted."""

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.queries.block import executed_work, own_work
from tensorc_dsl.schedule.step import BlockRef, LoopRef
from tensorc_dsl.schedule.trace.draws.compute_location import ComputeLocation, sample_compute_location

EXAMPLES = [ComputeLocation(("root", "i", "j", "inline"), (0, 1, 2, 3))]

CHAIN = """
program chain(A: f32[8, 6], C: f32[8, 6]) {
    buffer B: f32[8, 6]
    for i in 8, j in 6 {
        block B { spatial vi in 8 = i; spatial vj in 6 = j
            B[vi, vj] = A[vi, vj] + 1.0
        }
    }
    for ci in 8, cj in 6 {
        block C { spatial vi in 8 = ci; spatial vj in 6 = cj
            C[vi, vj] = exp(B[vi, vj])
        }
    }
}
"""
assert PRIMITIVES


def chain() -> Program:
    return parse_program(Source("chain", CHAIN))


def places(program: Program, block: str) -> tuple[str, ...]:
    found = sample_compute_location(program, BlockRef(block)).distribution
    assert isinstance(found, ComputeLocation)
    return found.places


def test_the_loops_of_the_consumer_and_the_two_words() -> None:
    assert places(chain(), "B") == ("root", "ci", "cj", "inline")


def test_loops_may_be_named_to_choose_among() -> None:
    found = sample_compute_location(chain(), BlockRef("B"), (LoopRef("cj"), LoopRef("elsewhere"))).distribution
    assert isinstance(found, ComputeLocation)
    assert (found.places, found.depths) == (("root", "cj", "inline"), (0, 2, 3))


def test_the_place_of_a_read_may_be_left_out() -> None:
    found = sample_compute_location(chain(), BlockRef("B"), inlined=False).distribution
    assert isinstance(found, ComputeLocation)
    assert (found.places, found.depths) == (("root", "ci", "cj"), (0, 1, 2))


def test_an_output_stays_where_it_is() -> None:
    assert places(chain(), "C") == ("root",)


def test_the_support_is_what_is_legal_now() -> None:
    vectorized = apply(chain(), "vectorize", LoopRef("cj")).program
    assert places(vectorized, "B") == ("root", "ci", "inline")
    outer = apply(chain(), "compute_at", BlockRef("B"), LoopRef("ci")).program
    assert "inline" in places(outer, "B")


def test_the_value_is_a_loop_or_a_word_and_the_feature_its_depth() -> None:
    offer = sample_compute_location(chain(), BlockRef("B"))
    d = offer.distribution
    assert [offer.value(p) for p in ("root", "cj", "inline")] == ["root", LoopRef("cj"), "inline"]
    assert [d.features(p) for p in ("root", "ci", "cj", "inline")] == [(0, 0), (1, 0), (2, 0), (3, 1)]
    assert d.describe() == 'one of "root", ci, cj, "inline"'
    assert d.moves("ci") == ["root", "cj", "inline"]


def test_every_place_of_the_support_is_accepted() -> None:
    offer = sample_compute_location(chain(), BlockRef("B"))
    for p in places(chain(), "B"):
        apply(chain(), "compute_at", BlockRef("B"), offer.value(p))


def test_loops_that_are_called_like_the_words_are_left_out() -> None:
    text = CHAIN.replace("ci", "root").replace("cj", "inline")
    assert places(parse_program(Source("chain", text)), "B") == ("root", "inline")


def test_a_place_after_which_data_do_not_choose_a_scattered_iteration_is_left_out() -> None:
    stages = """
program counts(X: u8[6], C: i32[4]) {
    buffer P: i32[6]
    for i in 6 {
        block P { spatial vi in 6 = i
            P[vi] = i32(X[vi])
        }
    }
    for v_init in 4 {
        block C_init { spatial vv in 4 = v_init
            C[vv] = 0
        }
    }
    for q in 6, v in 4 {
        block C { spatial vv in 4 = v; reduce vq in 6 = q
            C[vv] = C[vv] + (1 if P[vq] == i32(vv) else 0)
        }
    }
}
"""
    program = parse_program(Source("counts", stages))
    assert places(program, "P") == ("root", "q", "v", "inline")
    scattered = apply(program, "scatter", LoopRef("v")).program
    assert places(scattered, "P") == ("root", "q", "inline")


ROWS = """
program rows(A: f32[M, N], Y: f32[M, N]) {
    buffer T: f32[M]
    for i in M, j in N {
        block T { spatial vi in M = i; reduce vj in N = j
            init { T[vi] = 0.0 }
            T[vi] = T[vi] + A[vi, vj]
        }
    }
    for yi in M, yj in N {
        block Y { spatial vi in M = yi; spatial vj in N = yj
            Y[vi, vj] = A[vi, vj] / T[vi]
        }
    }
}
"""


def rows(n: int) -> Program:
    return parse_program(Source("rows", ROWS.replace("M", "64").replace("N", str(n))))


def test_what_would_be_computed_far_too_often_is_no_place() -> None:
    """A sum of a row, for each element of the row: N times the work of the sum."""
    assert places(rows(4), "T") == ("root", "yi", "yj")
    assert places(rows(512), "T") == ("root", "yi")
    among = sample_compute_location(rows(512), BlockRef("T"), most=1000).distribution
    assert isinstance(among, ComputeLocation) and among.places == ("root", "yi", "yj")


def test_work_is_counted_by_what_runs() -> None:
    program = rows(512)
    own = own_work(program)
    assert executed_work(program) == own
    moved = apply(program, "compute_at", BlockRef("T"), LoopRef("yj")).program
    assert executed_work(moved) > 50 * own == 50 * own_work(moved)
