"""`try { … } otherwise { … }`: a refused part is undone, and a trace has what was taken."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc_dsl import handlers, load
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_file
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.interp import calls
from tensorc_dsl.interp.evaluate import MAX_DEPTH
from tensorc_dsl.interp.space import Space
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.trial import Trial
from tests.examples import examples
from tests.interp.spaces import again, rng, schedule, space

LOOPS = "let [i, j, k] = C.loops"
NO = "parallel(C.loops[-1])"
"""A step that is refused: the loop accumulates."""


def body(trace: Trace) -> list[str]:
    return list(trace.lines)


def made(*lines: str) -> list[str]:
    """The trace of a schedule of these lines."""
    trace = schedule(*lines).sample(rng())
    verify(trace.program)
    back = again(schedule(*lines), trace.text)()
    assert (back.text, back.program) == (trace.text, trace.program)
    return body(trace)


def test_the_body_is_taken_if_nothing_is_refused() -> None:
    taken = made(LOOPS, "try { parallel(i); split(j, [_, 8]) } otherwise { unroll(j) }")
    assert taken == made(LOOPS, "parallel(i); split(j, [_, 8])")


def test_the_other_part_is_taken_if_a_step_is_refused() -> None:
    assert made(LOOPS, "try { parallel(k) } otherwise { unroll(j) }") == made(LOOPS, "unroll(j)")


def test_without_another_part_nothing_is_done() -> None:
    assert made(LOOPS, "try { parallel(k) }", "unroll(j)") == made(LOOPS, "unroll(j)")


@pytest.mark.parametrize(
    "steps",
    [
        "split(i, [_, 4]); fuse(j, k)",
        "let w = cache_write(C); reverse_compute_at(w, j)",
        'annotate(root, "n", 1); annotate(C, "m", 2)',
        "let [a, b] = split(i, [_, 4]); let t = for l in [a, b] { yield l.extent }",
        "m(C)",
        "for l in [1, 2] { m(C) }",
        "let i = 5; let new = i",
        "either { unroll(j) } or { unroll(j) }",
        "try { split(i, [_, 4]); parallel(C.loops[-1]) } otherwise { split(i, [_, 8]) }",
    ],
)
def test_all_that_the_refused_part_did_is_undone(steps: str) -> None:
    module = 'module m(b: Block) { annotate(b, "m", 1); deeper(b) } module deeper(b: Block) { cache_write(b) }\n'
    rest = "let [i0, i1] = split(i, [_, 16]); m(C); parallel(i0)"
    whole = space(f"{module}schedule s for matmul {{ {LOOPS}; try {{ {steps}; {NO} }} otherwise {{ {rest} }} }}")
    alone = space(f"{module}schedule s for matmul {{ {LOOPS}; {rest} }}")
    tried, straight = whole.sample(rng()), alone.sample(rng())
    assert (tried.text, tried.program, tried.draws) == (straight.text, straight.program, straight.draws)
    assert tried.modules == straight.modules == ("m", "deeper")
    assert tried.refused == ()


def test_the_list_of_a_loop_has_what_the_parts_taken_yield() -> None:
    lines = "let levels = for l in C.loops { try { yield 1; yield 2; parallel(l) } otherwise { yield 0 } }"
    assert made(lines, 'annotate(root, "levels", len(levels) * 10 + sum(levels))') == made(
        "parallel(C.loops[0])", 'annotate(root, "levels", 43)'
    )


def test_parts_nest() -> None:
    inner = f"try {{ {NO} }} otherwise {{ unroll(j); try {{ vectorize(i); {NO} }} }}"
    assert made(LOOPS, f"try {{ parallel(i); {inner} }} otherwise {{ unroll(i) }}") == made(
        LOOPS, "parallel(i); unroll(j)"
    )
    assert made(LOOPS, f"try {{ parallel(i); {inner}; {NO} }} otherwise {{ unroll(i) }}") == made(LOOPS, "unroll(i)")


def test_a_refused_other_part_refuses_the_schedule_or_the_part_around() -> None:
    twice = f"try {{ {NO} }} otherwise {{ split(i, [_, 5]) }}"
    with pytest.raises(ScheduleRefusal, match="E0312"):
        schedule(LOOPS, twice).sample(rng())
    assert made(LOOPS, f"try {{ unroll(j); {twice} }} otherwise {{ unroll(i) }}") == made(LOOPS, "unroll(i)")


def test_a_part_is_cut_back_to_where_it_began() -> None:
    """Modules around it are still under way: their names, the lists that they make, the number of their step."""
    text = """
    module outer(b: Block) {
        annotate(b, "first", 1)
        let made = for l in b.loops[:2] { try { inner(b, 5) } otherwise { yield l } }
        inner(b, 2)
        try { annotate(b, "undone", 1); parallel(b.loops[-1]) }
        let [_, x] = made
        annotate(b, "kind", x.kind)
        parallel(b.loops[-1])
    }
    module inner(b: Block, size: int) { for l in [1] { split(b.loops[0], [_, size]) } }
    schedule s for matmul { outer(C) }
    """
    with pytest.raises(ScheduleRefusal) as error:
        space(text).sample(rng())
    assert error.value.refusal.code == "E0330"
    assert error.value.origin == "step 3 of outer"


def test_a_module_that_was_left_can_be_applied_again() -> None:
    module = "module m(b: Block, size: int) { split(b.loops[0], [_, size]) }\n"
    one = space(f"{module}schedule s for matmul {{ try {{ m(C, 5) }} otherwise {{ m(C, 8) }} }}").sample(rng())
    other = space(f"{module}schedule s for matmul {{ m(C, 8) }}").sample(rng())
    assert (one.text, one.modules) == (other.text, other.modules)
    assert space(f"{module}schedule s for matmul {{ try {{ m(C, 8); {NO} }} }}").sample(rng()).modules == ()


def test_parts_are_refused_again_and_again() -> None:
    """More often than calls may be nested."""
    again_and_again = f"for n in range({2 * MAX_DEPTH}) {{ try {{ for l in [1] {{ {NO} }} }} }}"
    assert made(again_and_again, "unroll(C.loops[0])") == made("unroll(C.loops[0])")


def test_a_draw_has_the_name_of_a_loop_that_was_undone() -> None:
    drawn = 'let i_0 ~ sample_categorical([1]); annotate(C, "n", i_0)'
    assert made(LOOPS, f"try {{ split(i, [_, 4]); {NO} }}", drawn) == made(LOOPS, drawn)


def test_a_rule_is_left_out_with_the_parts_that_it_took() -> None:
    text = """
    module m(b: Block) when len(b.loops) == 3 {
        if b.has_reuse { try { let n ~ sample_categorical([5, 7]); split(b.loops[0], [_, n]) } }
        try { let n ~ sample_categorical([4, 8]); split(b.loops[0], [_, n]) }
        parallel(b.loops[-1])
    }
    module after(b: Block) { try { parallel(b.loops[-1]) } otherwise { unroll(b.loops[-1]) } }
    space s for llvm { m; after }
    """
    s = space(text)
    trace = s.sample(rng())
    assert body(trace) == ["let [i, j, k] = C.loops", "unroll(k)"]
    assert [d.name for d in trace.undone] == ["n", "n_1"] and trace.draws == ()
    assert [(r.rule, r.subject) for r in trace.refused] == [("m", "C")]
    assert [(a.module, a.line, bool(a.refusal)) for a in s.explain(trace)] == [
        ("m", 0, True),
        ("after", 0, False),
        ("after", 24, True),
    ]


def test_names_of_the_part_taken_are_bound_afterwards() -> None:
    both = "try { let a = split(i, [_, 5]) } otherwise { let a = split(i, [_, 8]) }"
    assert made(LOOPS, both, "unroll(a[1])") == made(LOOPS, "let a = split(i, [_, 8]); unroll(a[1])")
    lost = "let a = 4; try { let a = 5; parallel(k) }"
    assert made(LOOPS, lost, "split(j, [_, a])") == made(LOOPS, "split(j, [_, 4])")


# --- what is not swallowed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("unroll(nothing)", "E0520"),
        ("nothing(C)", "E0538"),
        ("split(C, [_, 4])", "E0543"),
        ("split(i)", "E0542"),
        ("let n ~ sample_categorical([1, 2]) := 3", "E0504"),
        ('let n = 1 + "x"', "E0523"),
        ("let n = [1][4]", "E0527"),
        ("if 3 { unroll(i) }", "E0522"),
    ],
)
def test_an_error_of_the_writer_is_an_error(line: str, code: str) -> None:
    with pytest.raises(TschedError, match=code):
        schedule(LOOPS, f"try {{ {line} }} otherwise {{ unroll(j) }}").sample(rng())


def test_a_bug_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError("in a primitive")

    monkeypatch.setattr(calls, "apply", broken)
    with pytest.raises(ZeroDivisionError, match="in a primitive"):
        schedule(LOOPS, "try { unroll(i) } otherwise { }").sample(rng())


def test_a_decision_that_no_draw_allows_refuses_the_trace() -> None:
    part = "try { let n ~ sample_categorical([5, 8]); split(i, [_, n]) }"
    with pytest.raises(ScheduleRefusal, match="E0506"):
        handlers.condition(schedule(LOOPS, part), {"n": 6}).sample(rng())


# --- draws -----------------------------------------------------------------------------------------------------------

DRAWN = """
    let [i, j, k] = C.loops
    try {
        let n ~ sample_categorical([5, 8])
        split(i, [_, n])
    } otherwise {
        let n ~ sample_categorical([2, 3])
        split(j, [_, n])
    }
    let after ~ sample_int(1..3)
    annotate(root, "after", after)
"""


def test_a_draw_may_decide_which_part_is_taken() -> None:
    s = schedule(DRAWN)
    first = handlers.condition(s, {"n": 8}).sample(rng())
    other = handlers.condition(s, {"n": 5}).sample(rng())
    assert [d.name for d in first.draws] == ["n", "after"] and first.undone == ()
    assert [d.name for d in other.draws] == ["n_1", "after"]
    assert [(d.name, d.decision) for d in other.undone] == [("n", 5)]
    assert not any("n ~" in line or "5" in line for line in other.lines)


@pytest.mark.parametrize("n", [5, 8])
def test_decisions_make_the_trace_again(n: int) -> None:
    s = schedule(DRAWN)
    trace = handlers.condition(s, {"n": n}).sample(rng())
    for seed in range(5):
        assert s.replay(trace.decisions, rng(seed)).program == trace.program
    assert handlers.replay(s, trace)().text == trace.text
    back = again(s, trace.text)()
    assert (back.text, back.program, back.draws) == (trace.text, trace.program, back.draws)
    assert back.decisions == {d.name: d.decision for d in trace.draws}


def test_a_search_can_move_what_led_to_the_refusal() -> None:
    s = schedule(DRAWN)
    refused = s.replay({"n": 5}, rng())
    assert {d.name for d in refused.open_draws} == {"n", "n_1", "after"}
    assert s.replay({**refused.decisions, "n": 8}, rng()).undone == ()


def test_limits_of_draws_take_the_other_part() -> None:
    part = 'try { let n ~ sample_int(1..8); within(n, 1..4, "n"); annotate(root, "n", n) } otherwise { unroll(C.loops[0]) }'
    s = schedule(part)
    assert "unroll" in handlers.condition(s, {"n": 5}).sample(rng()).text
    assert "unroll" not in handlers.condition(s, {"n": 4}).sample(rng()).text


STEPS = (
    "let f{n} ~ sample_perfect_tile(C.loops[0], parts=2); split(C.loops[0], f{n})",
    "let v{n} ~ sample_int(1..{n} + 2); split(C.loops[1], [_, v{n}])",
    "parallel(C.loops[{n} - 1])",
    "vectorize(C.loops[-{n}])",
    "cut(C, {n})",
    "if C.loops[0].extent > {n} {{ unroll(C.loops[0]) }}",
    "for l in C.loops {{ let s ~ sample_categorical([{n}, 5]); split(l, [_, s]) }}",
    "either {{ parallel(C.loops[0]) }} or {{ parallel(C.loops[-1]) }}",
    "maybe m{n} {{ reorder(reversed(C.loops)) }}",
    "let o{n} ~ sample_permutation(C.loops); reorder(o{n})",
    'let q{n} ~ sample_int(1..9); within(q{n}, 1..5, "q"); annotate(root, "q{n}", q{n})',
)
CUT = "module cut(b: Block, n: int) { let c ~ sample_categorical([n, 4]); try { split(b.loops[0], [_, c]) } }\n"


def parts(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    bodies = st.lists(inner, min_size=1, max_size=3).map("\n".join)
    return st.tuples(bodies, bodies).map(lambda b: f"try {{\n{b[0]}\n}} otherwise {{\n{b[1]}\n}}")


SIMPLE = st.tuples(st.sampled_from(STEPS), st.integers(1, 3)).map(lambda s: s[0].format(n=s[1]))
BODIES = st.lists(
    st.one_of(SIMPLE, st.recursive(SIMPLE, parts, max_leaves=8).map(lambda s: f"try {{\n{s}\n}}")), max_size=4
)


def of(body: str) -> Space:
    """A space of a rule, in which refused steps outside of a `try` leave the rule out."""
    return space(f"{CUT}module m(C: Block) {{\n{body}\n}}\nspace s for llvm {{ m }}", m=24, n=30, k=6)


@settings(max_examples=examples(50))
@given(BODIES.map("\n".join), st.integers(0, 1000))
def test_replaying_a_trace_gives_the_same_program(steps: str, seed: int) -> None:
    s = of(steps)
    try:
        trace = s.sample(rng(seed))
    except ScheduleRefusal as refusal:
        if refusal.refusal.code != "E0548":  # a limit of a draw, outside of a `try`
            raise
        return
    verify(trace.program)
    back = again(s, trace.text)()
    assert (back.text, back.program) == (trace.text, trace.program)
    assert back.decisions == {d.name: d.decision for d in trace.draws}
    assert s.replay(trace.decisions, rng(seed + 1)) == trace
    assert handlers.replay(s, trace)().text == trace.text
    watched = s.watch(lambda site: trace.decisions[site.name])
    assert watched.trace == trace
    assert [d for _, d in watched.places] == list(trace.draws)
    assert watched.stands == [] or watched.stands[-1].program == trace.program


# --- what is told ----------------------------------------------------------------------------------------------------

FILE = """
compute matmul(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] { C[i, j] = sum[k] A[i, k] * B[k, j] }

module cut(b: Block) {
    let n ~ sample_categorical([3, 4])
    try {
        let size ~ sample_categorical([5, 6])
        inner(b, size)
    } otherwise {
        let size ~ sample_categorical([7, 8])
        try { split(b.loops[0], [_, size]) }
    }
    annotate(b, "n", n)
}

module inner(b: Block, size: int) {
    let m ~ sample_categorical([1, 2])
    split(b.loops[0], [_, size * m])
}

schedule by_hand for matmul {
    try { cut(C); parallel(C.loops[-1]) }
    otherwise { unroll(C.loops[-1]) }
}

space rules for llvm { cut }
task t = matmul(M=8, N=8, K=8) with rules
task hand = matmul(M=8, N=8, K=8) with by_hand
"""

SHOWN = """\
space rules for matmul

cut
    C: applied
        n = 3, of 2: one of 3, 4
        size_1 = 8, of 2: one of 7, 8
        try in line 6: refused and undone, E0312: [_, 5] cannot make exactly 8 iterations of `i`
            size = 5, of 2: one of 5, 6
            m = 1, of 2: one of 1, 2
        try in line 11: applied
"""

SHOWN_BY_HAND = """\
schedule by_hand for matmul

by_hand
    matmul: applied
    try in line 22: refused and undone, E0330: the iterations of `k` cannot run at once: `C` accumulates into `C` over `k`
        n = 3, of 2: one of 3, 4
        size_1 = 8, of 2: one of 7, 8
        size = 5, of 2: one of 5, 6
        m = 1, of 2: one of 1, 2
"""


def told(tmp_path: Path, *arguments: str) -> tuple[int, str, str]:
    path = tmp_path / "steps.tsched"
    path.write_text(FILE)
    command, *rest = arguments
    result = CliRunner().invoke(main, [command, str(path), *rest])
    return result.exit_code, result.stdout, result.stderr


PINS = [x for pin in ("n=3", "size=5", "size_1=8", "m=1") for x in ("--condition", pin)]


@pytest.mark.parametrize(("task", "text"), [("t", SHOWN), ("hand", SHOWN_BY_HAND)])
def test_show_tells_what_was_taken(tmp_path: Path, task: str, text: str) -> None:
    assert told(tmp_path, "show", task, "--stage", "space", *PINS) == (0, text, "")


def test_sample_prints_what_was_taken_and_warns_of_nothing(tmp_path: Path) -> None:
    code, out, err = told(tmp_path, "sample", "t", *PINS)
    assert (code, err) == (0, "")
    assert out == (
        "schedule rules for matmul {\n"
        "    let n ~ sample_categorical([3, 4]) := 3  // cut.n of C\n"
        "    let size_1 ~ sample_categorical([7, 8]) := 8  // cut.size[1] of C\n"
        "    let [i, j, k] = C.loops\n"
        "    let [i_0, i_1] = split(i, [_, size_1])\n"
        '    annotate(C, "n", n)\n'
        "}\n"
    )


def test_check_warns_of_nothing(tmp_path: Path) -> None:
    assert told(tmp_path, "check", "--expand") == (0, f"{tmp_path / 'steps.tsched'}: ok, 2 tasks\n", "")


@pytest.mark.parametrize("task", ["t", "hand"])
def test_the_best_of_a_search_is_replayed_proved_and_recorded(tmp_path: Path, task: str) -> None:
    best, records = tmp_path / "best.tsched", tmp_path / "records.sqlite"
    options = ["--threads", "1", "--records", str(records), "--output", str(best), "--strategy", "evolutionary"]
    code, _, err = told(tmp_path, "tune", task, "--trials", "4", *options)
    assert code == 0, err
    assert "try" not in best.read_text()
    for command in (["replay", task, str(best)], ["verify", task, str(best)]):
        assert told(tmp_path, *command)[0] == 0
    whole = load(tmp_path / "steps.tsched", threads=1)[task].space
    with Database.required(records) as database:
        trials = [kept.trial for kept in database.all()]
    assert trials
    for trial in trials:
        assert isinstance(trial, Trial)
        assert whole.replay(trial.decisions, rng(7)).text == trial.trace


# --- what is checked -------------------------------------------------------------------------------------------------


def codes(steps: str) -> list[str]:
    text = f"compute f(A: f32[N]) -> B: f32[N] {{ B[i] = A[i] }}\nschedule s for f {{\n{steps}\n}}\n"
    return [d.code for d in load_file(Source("x.tsched", text)).diagnostics]


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ("try { let a = split(B.loops[0], [_, 2]) } otherwise { let a = B.loops }\nunroll(a[0])", []),
        ("try { let a = split(B.loops[0], [_, 2]) }\nunroll(a[0])", ["E0220"]),
        ("try { let a = B.loops; unroll(a[0]) } otherwise { unroll(a[0]) }", ["E0220"]),
        ("try { unroll(nothing) }", ["E0220"]),
        ("try { let x ~ sample_categorical([1, 2]) }", ["W0202"]),
        ("try { unroll(B.loops[0]) } otherwise { unrol(B.loops[0]) }", ["E0223"]),
        ("let a = for l in B.loops { try { yield l } otherwise { unroll(l) } }\nunroll(a[0])", ["W0206"]),
        ("try { }", ["W0206"]),
        ("try { } otherwise { unroll(B.loops[0]) }", ["W0206"]),
        ("try { try { unroll(B.loops[0]) } }", []),
        ("try { B.loops[1] } otherwise { unroll(B.loops[0]) }", []),
        ("B.loops[0].can_vectorize", ["W0207"]),
        ("len(B.loops)", ["W0207"]),
        ('within(len(B.loops), 1..4, "loops")', []),
        ("for l in B.loops { unroll(l) }", []),
        ("1 + 2", ["W0207"]),
        ("if B.loops[0].can_vectorize { B }", ["W0207"]),
    ],
)
def test_names_and_steps_are_checked(steps: str, found: list[str]) -> None:
    assert codes(steps) == found


OTHERWISE = "what is done if a step of a `try` is refused stands in `otherwise { … }`"


@pytest.mark.parametrize(
    ("text", "help"),
    [
        (
            "try { unroll(i) } else { unroll(j) }",
            "what is done if a step of a `try` is refused stands in `otherwise { … }`",
        ),
        (
            "try { unroll(i) } except { unroll(j) }",
            "what is done if a step of a `try` is refused stands in `otherwise { … }`",
        ),
        ("tri { unroll(i) }", "did you mean `try`?"),
    ],
)
def test_other_words_are_repaired(text: str, help: str) -> None:
    with pytest.raises(TschedError) as error:
        parse(Source("x.tsched", f"schedule s for f {{ {text} }}"))
    assert [n.text for n in error.value.diagnostics[0].notes if n.kind == "help"] == [help]
