"""Expansion is a function of (compute, target, decisions): over random spaces, equal inputs give equal bytes."""

from hypothesis import assume, given
from hypothesis import strategies as st

from tensorc_dsl.ir.verify import verify
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.trace import Trace
from tests.interp.spaces import again, rng, space

PIECES = (
    'let a ~ sample_categorical({{{n}: 0.5, "x": 2, true: 1}}); annotate(b, "a{n}", a)',
    'let p ~ sample_int({n}..{n} * 4 + 1); annotate(root, "p{n}", p * 2 - 1)',
    'either({n}) {{ annotate(root, "e", 1) }} or(1.5) {{ let z ~ sample_int(1..9); annotate(b, "z", z) }}',
    "for l in b.loops[:{n}] {{ let f ~ sample_perfect_tile(l, parts=2, max_innermost=16); split(l, f) }}",
    "let t ~ sample_partitioned_tile(b.loops[-1], 2, 1, {n}); split(b.loops[-1], t)",
    "let o ~ sample_permutation(b.spatial_loops); reorder(o); let first = o[0]; if first.is_serial {{ parallel(first) }}",
    "let o ~ sample_permutation(b.loops); reorder(o)",
    "let q ~ sample_int(2..5); split(b.loops[0], [_, q + {n}], partial=true)",
    "if len(b.producers) > 0 {{ let w ~ sample_compute_location(b.producers[0]); compute_at(b.producers[0], w) }}",
    "helper(b, {n})",
    'try {{ let v ~ sample_int({n}..9); split(b.loops[0], [_, v]) }} otherwise {{ annotate(root, "v{n}", 1) }}',
)
HELPER = 'module helper(b: Block, n: int) { let h ~ sample_categorical([n, n + 1]); annotate(b, "h", h) }\n'


def text(pieces: list[tuple[int, int]]) -> str:
    body = "\n".join("    { " + PIECES[p].format(n=n) + " }" for p, n in pieces)
    body = body.replace("    { ", "    for _ in [0] { ")  # a scope for the names of each piece
    return f"{HELPER}module m(b: Block) {{\n{body}\n}}\nspace s for llvm {{ m }}"


@given(
    st.lists(st.tuples(st.integers(0, len(PIECES) - 1), st.integers(1, 3)), min_size=1, max_size=5),
    st.sampled_from(["matmul", "chain"]),
    st.integers(0, 1000),
)
def test_expansion_is_a_function_of_its_inputs(pieces: list[tuple[int, int]], compute: str, seed: int) -> None:
    s = space(text(pieces), compute=compute, m=24, n=36, k=6)
    try:
        trace: Trace = s.sample(rng(seed))
    except ScheduleRefusal:
        assume(False)
        raise
    verify(trace.program)
    assert space(text(pieces), compute=compute, m=24, n=36, k=6).sample(rng(seed)).text == trace.text
    assert s.replay(trace.decisions, rng(seed + 1)).text == trace.text
    back = again(s, trace.text)()
    assert back.text == trace.text
    assert back.program == trace.program
    assert back.decisions == {d.name: d.decision for d in trace.draws}
