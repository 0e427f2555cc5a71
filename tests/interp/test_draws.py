"""Every kind of draw in the language: its trace replays byte for byte, pins decide, errors list the legal values."""

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.interp.space import Space
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import find_block
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.draws.choices import Categorical, Integer, Permutation
from tensorc_dsl.schedule.trace.draws.compute_location import ComputeLocation
from tensorc_dsl.schedule.trace.draws.tiles import PartialTile, PartitionedTile, PerfectTile
from tests.interp.spaces import again, rng, schedule, space

KINDS: dict[str, tuple[Space, type]] = {
    "perfect tile": (
        schedule("let [i, j, k] = C.loops", "let t ~ sample_perfect_tile(k, parts=2, max_innermost=8)", "split(k, t)"),
        PerfectTile,
    ),
    "partitioned tile": (
        schedule(
            "let [i, j, k] = C.loops",
            "let t ~ sample_partitioned_tile(j, 3, partition=1, inner_multiple=8)",
            "split(j, t)",
        ),
        PartitionedTile,
    ),
    "perfect tile within limits": (
        schedule(
            "let [i, j, k] = C.loops",
            "let t ~ sample_perfect_tile(k, parts=3, levels=[[1], [0, 2]], within=[2..6, 1..8])",
            "split(k, t)",
        ),
        PerfectTile,
    ),
    "partial tile within limits": (
        schedule(
            "let [i, j, k] = C.loops",
            "let t ~ sample_partial_tile(j, 3, levels=[[1, 2]], within=[3..9])",
            "split(j, concat([_], t), partial=true)",
        ),
        PartialTile,
    ),
    "partial tile": (
        schedule(
            "let [i, j, k] = C.loops",
            "let t ~ sample_partial_tile(j, 3, max_innermost=8)",
            "split(j, concat([_], t), partial=true)",
        ),
        PartialTile,
    ),
    "categorical": (
        schedule('let x ~ sample_categorical({0: 0.2, 16: 3, "a": 0.5, true: 1})', 'annotate(root, "x", x)'),
        Categorical,
    ),
    "int": (
        schedule("let n ~ sample_int(1..6)", "split(C.loops[0], [_, n * 2], partial=true)"),
        Integer,
    ),
    "permutation": (
        schedule(
            "let [i, j, k] = C.loops",
            "let [i0, i1] = split(i, [_, 4])",
            "let order ~ sample_permutation([i0, j, k])",
            "reorder(order[:2], order[2:], i1)",
            "unroll(order[2])",
            "let [a, b, c] = order",
            'annotate(b, "x", order[1].extent)',
        ),
        Permutation,
    ),
    "compute location": (
        schedule("let place ~ sample_compute_location(E)", "compute_at(E, place)", compute="chain"),
        ComputeLocation,
    ),
}


@pytest.mark.corpus
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("n", range(8))
def test_a_trace_replays_byte_for_byte(name: str, n: int) -> None:
    s, kind = KINDS[name]
    trace = s.sample(rng(n))
    assert isinstance(trace.draws[0].distribution, kind)
    back = again(s, trace.text)()
    assert back.text == trace.text
    assert back.program == trace.program
    assert back.open_draws == ()
    verify(back.program)


@pytest.mark.corpus
@pytest.mark.parametrize("name", KINDS)
def test_the_same_decisions_make_the_same_bytes_and_every_value_can_be_had(name: str) -> None:
    s, _ = KINDS[name]
    traces = [s.sample(rng(n)) for n in range(60)]
    assert all(s.replay(t.decisions, rng(99)).text == t.text for t in traces)
    seen = {str(t.draws[0].decision) for t in traces}
    assert len(seen) == traces[0].draws[0].distribution.size() or len(seen) > 12


@pytest.mark.parametrize("name", KINDS)
def test_deleting_the_pin_opens_the_draw_again(name: str) -> None:
    s, _ = KINDS[name]
    trace = s.sample(rng(1))
    line = next(x for x in trace.lines if ":=" in x)
    opened = again(s, trace.text.replace(line, line.partition(" := ")[0]))
    texts = {opened.sample(rng(n)).text for n in range(20)}
    assert len(texts) >= 3
    assert trace.text in {opened.replay(trace.decisions, rng()).text}


def test_a_draw_depends_on_those_of_other_loops() -> None:
    s = schedule(
        "let [i, j, k] = C.loops",
        "let f = for l in [i, j] {",
        "    let left = 16 / product(for x in so_far() { yield x[1] })",
        "    let t ~ sample_perfect_tile(l, parts=2, levels=[[1]], within=[1..left])",
        "    yield t",
        "}",
        "split(i, f[0]); split(j, f[1])",
    )
    traces = [s.sample(rng(n)) for n in range(40)]
    inner: set[tuple[int, ...]] = {tuple(d.decision[1] for d in t.draws) for t in traces}  # type: ignore[index,misc]
    assert all(a * b <= 16 for a, b in inner)
    assert max(a for a, _ in inner) == max(b for _, b in inner) == 16
    assert all(again(s, t.text)().text == t.text for t in traces)


def test_arguments_behind_one_that_is_left_out_are_its_own() -> None:
    trace = schedule("let t ~ sample_partitioned_tile(C.loops[1], 2, inner_multiple=8)").sample(rng())
    assert trace.draws[0].distribution == PartitionedTile(48, 2, 0, 8)


def test_the_order_of_a_permutation_is_the_order_of_the_loops() -> None:
    s, _ = KINDS["permutation"]
    trace = s.replay({"order": (2, 0, 1)}, rng())
    assert [x.var for x in find_block(trace.program, "C")[0]] == ["k", "i_0", "j", "i_1"]
    assert "reorder(order[:2], order[2:], i_1)" in trace.text
    assert "unroll(order[2])" in trace.text


def test_a_place_is_pinned_by_the_name_of_the_loop() -> None:
    s, _ = KINDS["compute location"]
    inner = s.replay({"place": "j_1"}, rng())
    assert "let place ~ sample_compute_location(E) := j_1" in inner.text
    assert "compute_at(E, place)" in inner.text
    assert 'in "local"' in format_program(inner.program)
    inlined = s.replay({"place": "inline"}, rng())
    assert "block E" not in format_program(inlined.program)
    root = s.replay({"place": "root"}, rng())
    assert root.program == s.program


@pytest.mark.parametrize(
    ("draw", "pin", "legal"),
    [
        ("sample_perfect_tile(C.loops[2], parts=2)", "[5, 7]", "product 24"),
        ("sample_partitioned_tile(C.loops[2], 2, 1, 8)", "[24, 1]", "the last one a multiple of 8"),
        ("sample_partial_tile(C.loops[2], 3, 8)", "[4, 12]", "a product of at most 24, the last one at most 8"),
        ("sample_categorical([1, 2, 4])", "3", "one of 1, 2, 4"),
        ("sample_categorical([true])", "1", "one of true"),
        ("sample_int(1..8)", "9", "an int from 1 to 8"),
        ("sample_permutation(C.loops)", "[0, 1, 1]", "positions 0 to 2, each once"),
        ("sample_compute_location(C)", "i", 'one of "root"'),
        ("sample_int(1..8)", "[_]", "an int from 1 to 8"),
    ],
)
def test_an_illegal_pin_lists_the_legal_values(draw: str, pin: str, legal: str) -> None:
    with pytest.raises(TschedError) as problem:
        schedule("let [i, j, k] = C.loops", f"let t ~ {draw} := {pin}").sample(rng())
    (d,) = problem.value.diagnostics
    assert d.code == "E0504"
    assert d.span is not None
    assert d.span.text == pin
    assert legal in d.notes[-1].text


@pytest.mark.parametrize(
    ("draw", "code"),
    [
        ("sample_perfect_tile(C, 2)", "E0543"),
        ("sample_perfect_tile(C.loops[0], 2.5)", "E0543"),
        ("sample_perfect_tile(C.loops[0], 17)", "E0503"),
        ("sample_partitioned_tile(C.loops[0], 2, 2)", "E0503"),
        ("sample_partitioned_tile(C.loops[0], 2, 1, 0)", "E0503"),
        ("sample_categorical(C.loops)", "E0543"),
        ("sample_categorical({1: -1})", "E0503"),
        ("sample_categorical({1: inf})", "E0503"),
        ("sample_categorical({1: 0})", "E0503"),
        ("sample_categorical({1: true})", "E0543"),
        ("sample_categorical({C: 1})", "E0547"),
        ("sample_int(4..1)", "E0503"),
        ("sample_int(4)", "E0543"),
        ("sample_int(1..C)", "E0523"),
        ("sample_permutation(4)", "E0543"),
        ("sample_compute_location(C.loops[0])", "E0543"),
        ("sample_compute_location()", "E0502"),
        ("sample_permutation(C.loops, list=C.loops)", "E0502"),
    ],
)
def test_arguments_that_make_no_sense(draw: str, code: str) -> None:
    with pytest.raises(TschedError) as problem:
        schedule(f"let t ~ {draw}").sample(rng())
    (d,) = problem.value.diagnostics
    assert d.code == code
    assert d.span is not None


@pytest.mark.parametrize(
    ("draw", "code"),
    [
        ("sample_perfect_tile(C.loops[0], 1, 8)", "E0508"),
        ("sample_partitioned_tile(C.loops[2], 2, 1, 7)", "E0508"),
    ],
)
def test_where_the_program_leaves_nothing_to_draw_it_is_a_refusal(draw: str, code: str) -> None:
    with pytest.raises(ScheduleRefusal) as refusal:
        schedule(f"let t ~ {draw}").sample(rng())
    assert refusal.value.refusal.code == code
    assert refusal.value.span is not None


def test_weights_of_branches_are_probabilities() -> None:
    s = schedule('either(0.3) { annotate(root, "x", 1) } or(0.7) { annotate(root, "x", 2) } or(0) {}')
    counts = [s.sample(rng(n)).decisions["branch"] for n in range(400)]
    assert 90 < counts.count(0) < 150
    assert counts.count(0) + counts.count(1) == 400
    text = s.sample(rng()).text
    assert "let branch ~ sample_categorical({0: 0.3, 1: 0.7, 2: 0.0}) :=" in text
    assert again(s, text)().text == text


def test_a_draw_of_structure_has_the_names_that_are_written() -> None:
    s = schedule(
        'either pack: panels(3) { annotate(root, "x", 1) } or none(7) { annotate(root, "x", 2) }',
        "either pack: a { maybe(25) fine {} } or b {}",
        'maybe last { annotate(root, "y", 1) }',
    )
    traces = [s.sample(rng(n)) for n in range(400)]
    packs = [t.decisions["pack"] for t in traces]
    assert 90 < packs.count("panels") < 150
    assert set(packs) == {"panels", "none"}
    assert all(dict(t.program.annotations)["x"] == (1 if t.decisions["pack"] == "panels" else 2) for t in traces)
    assert {t.decisions["pack_1"] for t in traces} == {"a", "b"}
    assert all(("fine" in t.decisions) == (t.decisions["pack_1"] == "a") for t in traces)
    fine = [t.decisions["fine"] for t in traces if "fine" in t.decisions]
    assert len(fine) * 0.15 < fine.count(True) < len(fine) * 0.35
    assert all(("y" in dict(t.program.annotations)) == (t.decisions["last"] is True) for t in traces)
    trace = next(t for t in traces if "fine" in t.decisions and t.decisions["pack"] == "none" and t.decisions["last"])
    assert 'let pack ~ sample_categorical({"panels": 3.0, "none": 7.0}) := "none"' in trace.text
    assert 'let pack_1 ~ sample_categorical(["a", "b"]) := "a"' in trace.text
    assert "let fine ~ sample_categorical({true: 25.0, false: 75.0}) :=" in trace.text
    assert "let last ~ sample_categorical([true, false]) := true" in trace.text
    assert again(s, trace.text)().text == trace.text
    assert s.replay(trace.decisions, rng(9)).text == trace.text


def test_a_chance_of_0_or_100_leaves_nothing_open() -> None:
    s = schedule("maybe(0) never {}", "maybe(100) always {}")
    assert {tuple(s.sample(rng(n)).decisions.items()) for n in range(50)} == {(("never", False), ("always", True))}


@pytest.mark.parametrize("chance", ["101", "-1", "true", '"a"', "inf"])
def test_a_chance_is_a_number_of_a_hundred(chance: str) -> None:
    with pytest.raises(TschedError, match="E0503: a chance is a number from 0 to 100"):
        schedule(f"let c = {chance}", "maybe(c) pack {}").sample(rng())


def test_a_schedule_that_was_frozen_with_numbered_branches_still_replays() -> None:
    text = "let branch_6 ~ sample_categorical({0: 70.0, 1: 30.0}) := 1"
    trace = schedule(text, 'annotate(root, "x", 1)').sample(rng())
    assert trace.decisions == {"branch_6": 1}


def test_arguments_that_are_drawn_stay_formulas() -> None:
    s = schedule(
        "let n ~ sample_categorical([2, 4])",
        "let t ~ sample_perfect_tile(C.loops[1], parts=(n / 2) + 1, max_innermost=n * 4)",
        "let m ~ sample_int(n..n * 8)",
        'annotate(root, "x", min(m, n + 1))',
        'annotate(root, "y", clamp(m, 1, n))',
    )
    trace = s.sample(rng(3))
    assert "parts=(n / 2) + 1, max_innermost=n * 4" in trace.text
    assert "sample_int(n..n * 8)" in trace.text
    assert "min(m, n + 1)" in trace.text
    assert "min(max(m, 1), n)" in trace.text
    assert again(s, trace.text)().text == trace.text


def test_draws_of_modules_and_loops_have_names_of_their_own() -> None:
    s = space(
        'module m(b: Block) { let f ~ sample_int(1..3); let i ~ sample_int(1..3); annotate(b, "x", f + i) }\n'
        "module twice(b: Block) { m(b); m(b) }\nspace s for llvm { twice }"
    )
    trace = s.sample(rng())
    assert [d.name for d in trace.draws] == ["f", "i_1", "f_1", "i_2"]
    assert again(s, trace.text)().text == trace.text
