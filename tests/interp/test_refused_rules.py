"""A refused rule of a space is left out and reported; the schedule goes on without it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from click.testing import CliRunner

from tensorc_dsl import handlers
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.schedule.step import ScheduleRefusal
from tests.interp.spaces import again, rng, schedule, space

RULES = """
module bad(b: Block) {
    let [first, _] = b.loops[:2]
    let factors ~ sample_perfect_tile(first, parts=2)
    let [outer, inner] = split(first, factors)
    deeper(b, outer)
}

module deeper(b: Block, outer: Loop) {
    let never ~ sample_categorical([1, 2])
    for n in [1, 2] { annotate(b, "x", n); for l in [b.loops[-1]] { parallel(l) } }
}

module good(b: Block) { let factors ~ sample_categorical([2, 4]); split(b.loops[0], [_, factors]) }

space rules for llvm { bad; good }
"""


def test_nothing_of_a_refused_rule_is_left_but_its_decisions() -> None:
    s = space(RULES)
    trace = s.sample(rng())
    verify(trace.program)
    (refused,) = trace.refused
    assert (refused.rule, refused.subject, refused.refusal.refusal.code) == ("bad", "C", "E0330")
    assert [d.name for d in trace.draws] == ["factors_1"]
    assert [d.name for d in trace.undone] == ["factors", "never"]
    assert trace.decisions.keys() == {"factors", "never", "factors_1"}
    factors = trace.decisions["factors_1"]
    assert trace.text == (
        "schedule rules for matmul {\n"
        f"    let factors_1 ~ sample_categorical([2, 4]) := {factors}\n"
        "    let [i, j, k] = C.loops\n"
        "    let [i_0, i_1] = split(i, [_, factors_1])\n"
        "}\n"
    )


def test_decisions_and_text_make_it_again() -> None:
    s = space(RULES)
    for n in range(5):
        trace = s.sample(rng(n))
        replayed = s.replay(trace.decisions, rng(n + 1))
        assert (replayed.text, replayed.decisions, replayed.refused) == (trace.text, trace.decisions, trace.refused)
        back = again(s, trace.text)()
        assert (back.text, back.program) == (trace.text, trace.program)


def test_a_rule_that_is_refused_for_some_draws_applies_for_others() -> None:
    text = "module m(b: Block) { let n ~ sample_categorical([5, 8]); split(b.loops[0], [_, n]) } space s for llvm { m }"
    s = space(text)
    assert [len(handlers.condition(s, {"n": n}).sample(rng()).refused) for n in (5, 8)] == [1, 0]


def test_a_schedule_and_a_decision_are_refused_as_ever() -> None:
    with pytest.raises(ScheduleRefusal, match="E0330"):
        schedule("parallel(C.loops[-1])").sample(rng())
    with pytest.raises(ScheduleRefusal, match="E0506"):
        handlers.condition(space(RULES), {"factors": (5, 5)}).sample(rng())


def test_what_a_rule_does_not_accept_itself_is_another_draw() -> None:
    text = 'module m(b: Block) { let n ~ sample_int(1..8); within(n, 1..4, "n") } space s for llvm { m }'
    with pytest.raises(ScheduleRefusal, match="E0548"):
        handlers.condition(space(text), {"n": 5}).sample(rng())


FILE = (
    """
compute matmul(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] { C[i, j] = sum[k] A[i, k] * B[k, j] }
"""
    + RULES
    + "task t = matmul(M=8, N=8, K=8) with rules\n"
)

SHOWN = """\
space rules for matmul

bad
    C: refused and left out, E0330: the iterations of `k` cannot run at once: `C` accumulates into `C` over \
`k`
        factors = [4, 2], of 4: 2 factors with product 8, the last one of 1, 2, 4, 8
        never = 1, of 2: one of 1, 2

good
    C: applied
        factors_1 = 2, of 2: one of 2, 4
"""


def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.chdir(tmp_path)
    Path("rules.tsched").write_text(FILE)
    result = CliRunner().invoke(main, [*arguments])
    return result.exit_code, result.stdout, result.stderr


def test_show_space_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pins = ["--condition", "factors=[4, 2]", "--condition", "never=1", "--condition", "factors_1=2"]
    assert told(tmp_path, monkeypatch, "show", "rules.tsched", "t", "--stage", "space", *pins) == (0, SHOWN, "")


def test_check_warns_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = told(tmp_path, monkeypatch, "check", "--expand", "rules.tsched")
    assert code == 0
    assert "warning[E0330]: the iterations of `k` cannot run at once" in err
    assert "rule `bad` is left out on `C`" in err
    assert told(tmp_path, monkeypatch, "check", "--expand", "--deny-warnings", "rules.tsched")[0] == 1


@pytest.mark.parametrize("command", [("sample", "-n", "5"), ("show", "--stage", "trace"), ("show", "--scheduled")])
def test_sample_and_show_warn_of_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    name, *options = command
    code, out, err = told(tmp_path, monkeypatch, name, "rules.tsched", "t", *options)
    assert code == 0 and out
    assert err.count("warning[E0330]: the iterations of `k` cannot run at once") == 1
    assert "rule `bad` is left out on `C`" in err


def test_it_comes_from_another_process_as_it_was() -> None:
    (refused,) = space(RULES).sample(rng()).refused
    (copy,) = pickle.loads(pickle.dumps([refused]))
    assert copy == refused
    for name in ("refusal", "message", "help", "program", "focus", "facts", "span", "origin", "steps"):
        assert getattr(copy.refusal, name) == getattr(refused.refusal, name)
    assert str(copy.refusal) == str(refused.refusal)


def test_tune_counts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--trials", "1", "--threads", "1", "--records", "none.db"]
    code, out, _ = told(tmp_path, monkeypatch, "tune", "rules.tsched", "t", *options)
    assert code == 0
    assert "rule `bad` was refused on `C` and left out in " in out
    code, out, _ = told(tmp_path, monkeypatch, "tune", "rules.tsched", "t", "--json", *options)
    (refused,) = json.loads(out)["refused"]
    assert (refused["rule"], refused["subject"], refused["code"]) == ("bad", "C", "E0330")
    assert refused["count"] >= 1
