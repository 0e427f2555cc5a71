"""`prior` items: a space or schedule by another name, whose draws have other weights."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import tensorc_dsl
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.api.recorded import FLOOR, Lesson, plain, weights_of, with_priors
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution, Weighted
from tensorc_dsl.schedule.trace.draws.choices import Branch, Categorical
from tensorc_dsl.schedule.trace.draws.tiles import PerfectTile
from tensorc_dsl.syntax.fmt import format_text
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.tuning.insight import Learnt, Value
from tests.syntax.trees import format_file

FILE = """\
use std.ops.{matmul}

/// By hand.
schedule tiled for matmul {
    let [i, j, k] = C.loops
    let rows ~ sample_perfect_tile(i, parts=2)  // how many rows
    let [i0, i1] = split(i, rows)
    maybe vectors {
        let width ~ sample_categorical({4: 1, 8: 1})
        vectorize(split(j, [_, width])[1])
    }
    either unrolled: no {} or yes(2) { unroll(i1) }
}

task small = matmul(M=16, N=64, K=8) with tiled
"""

PRIOR = """
/// Learnt.
prior learnt for tiled {
    rows ~ {[4, 4]: 70, [5, 5]: 10, _: 20}
    vectors ~ {true: 80, _: 20}
    width ~ {8: 0.9, _: 0.1}
    unrolled ~ {"no": 80, _: 20}
}
"""


def load(text: str) -> tensorc_dsl.TaskFile:
    return tensorc_dsl.loads(text, threads=1)


def shares(task: tensorc_dsl.Task, name: str, count: int = 300) -> dict[Decision, float]:
    drawn = Counter(d[name] for d in (task.sample(n).decisions for n in range(count)) if name in d)
    return {value: n / sum(drawn.values()) for value, n in drawn.items()}


def test_draws_have_the_weights_of_the_prior() -> None:
    task = load(FILE.replace("with tiled", "with learnt") + PRIOR)["small"]
    assert shares(task, "rows")[4, 4] == pytest.approx(0.7 / 0.9 + 0.2 / 0.9 / 5, abs=0.08)
    assert shares(task, "rows").keys() == shares(load(FILE)["small"], "rows").keys()
    assert shares(task, "vectors")[True] == pytest.approx(0.9, abs=0.06)
    assert shares(task, "width")[8] == pytest.approx(0.95, abs=0.05)
    assert shares(task, "unrolled")["no"] == pytest.approx(0.8 + 0.2 / 3, abs=0.06)


def test_a_prior_changes_no_schedule_but_its_name() -> None:
    file = load(FILE + PRIOR + "task other = matmul(M=16, N=64, K=8) with learnt\n")
    trace = file["other"].sample(3)
    assert all(isinstance(d.distribution, Weighted) for d in trace.draws)
    again = file["small"].expand(Source("t", trace.text))
    assert again.text == trace.text
    assert again.lines == trace.lines
    assert not any(isinstance(d.distribution, Weighted) for d in again.draws)


def test_a_task_without_a_choice_does_not_take_a_prior() -> None:
    file = load(FILE.replace(" with tiled", "") + PRIOR)
    assert file["small"].space.definition.name == "tiled"


def test_a_prior_of_a_space_weighs_the_draws_of_its_modules() -> None:
    head = "use std.cpu\nuse std.ops.{matmul}\ntask small = matmul(M=64, N=64, K=64)"
    task = load(head)["small"]
    name = next(d.name for d in task.sample(0).open_draws if d.name.startswith("step"))
    text = f"{head} with learnt\nprior learnt for default {{ {name} ~ {{16: 99, _: 1}} }}\n"
    assert shares(load(text)["small"], name, 40)[16] > 0.9
    # The space itself stays as it was, and is what a task without `with` takes.
    assert load(text.replace("with learnt", ""))["small"].sample(1) == task.sample(1)


def test_priors_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "shared.tsched").write_text(FILE + PRIOR)
    user = "use std.ops.{matmul}\nuse shared.{learnt}\ntask other = matmul(M=16, N=32, K=8) with learnt\n"
    (tmp_path / "user.tsched").write_text(user)
    task = tensorc_dsl.load(tmp_path / "user.tsched", threads=1)["other"]
    assert shares(task, "vectors", 100)[True] > 0.8
    # A prior of a used prior keeps the weights that it does not give itself.
    more = user.replace("with learnt", "with mine") + 'prior mine for learnt { unrolled ~ {"yes": 99, _: 1} }\n'
    (tmp_path / "user.tsched").write_text(more)
    task = tensorc_dsl.load(tmp_path / "user.tsched", threads=1)["other"]
    assert shares(task, "vectors", 100)[True] > 0.8
    assert shares(task, "unrolled", 100)["yes"] > 0.9


def test_a_prior_of_a_module_folder_keeps_its_modules(tmp_path: Path) -> None:
    """The modules of a used space have full names, and its prior finds them."""
    (tmp_path / "shared.tsched").write_text(
        "module lanes(b: Block) { maybe(50) wide { vectorize(b.loops[-1]) } }\n"
        "space own for llvm { lanes }\nprior learnt for own { wide ~ {true: 99, _: 1} }\n"
    )
    (tmp_path / "user.tsched").write_text(
        "use shared.{learnt}\ncompute copy(X: f32[M]) -> Y: f32[M] { Y[i] = X[i] }\ntask t = copy(M=64) with learnt\n"
    )
    assert shares(tensorc_dsl.load(tmp_path / "user.tsched", threads=1)["t"], "wide", 60)[True] > 0.9


def test_a_prior_is_printed_and_formatted_as_it_is_read() -> None:
    tree = parse(Source("f", FILE + PRIOR))
    assert parse(Source("f", format_file(tree))) == tree
    text = format_text(Source("f", FILE + PRIOR))
    assert text.endswith(PRIOR) and format_text(Source("f", text)) == text
    long = ", ".join(f"[{n}, {n}, {n}, {n}]: {n}" for n in range(1, 20))
    broken = format_text(Source("f", f"prior p for s {{ tile ~ {{{long}, _: 20}} }}"))
    assert parse(Source("f", broken)) == parse(Source("f", f"prior p for s {{ tile ~ {{{long}, _: 20}} }}"))
    assert max(map(len, broken.splitlines())) <= 120


def test_prior_is_a_name_where_a_name_is_expected() -> None:
    text = (
        "compute prior(prior: f32[M]) -> Y: f32[M] { Y[i] = prior[i] }\nschedule s for prior {}\ntask t = prior(M=4)\n"
    )
    assert load(text)["t"].space.definition.name == "s"


# --- what a search has learnt ------------------------------------------------------------------------------------------


def learnt(name: str, distribution: Distribution, *values: tuple[Decision, float, float]) -> Learnt:
    return Learnt(name, distribution, 1.0, 1.0, tuple(Value(d, prior, posterior) for d, prior, posterior in values))


LEARNT = (
    learnt("rows", PerfectTile(16, 2, 16), ((4, 4), 0.2, 0.75), ((16, 1), 0.2, 0.25)),
    learnt("vectors", Branch((50.0, 50.0), (True, False)), (True, 0.5, 0.52), (False, 0.5, 0.48)),
    learnt("width", Categorical((4, 8), (1.0, 1.0)), (8, 0.5, 0.995), (4, 0.5, 0.005)),
    learnt("unrolled", Branch((1.0, 2.0), ("no", "yes")), ("no", 0.33, 0.9), ("yes", 0.67, 0.1)),
    Learnt("never", Categorical((4, 8), (1.0, 1.0)), 0.1, 0.0, ()),
)


def test_weights_are_the_posterior_above_a_floor() -> None:
    assert weights_of(LEARNT) == {"rows": {(4, 4): 60, (16, 1): 20}, "width": {8: 79}, "unrolled": {"no": 72, "yes": 8}}
    many = learnt("x", PerfectTile(2**20, 3, 2**20), *(((n, 1, 1), 0.0, 0.06 - n / 1000) for n in range(1, 30)))
    assert len(weights_of((many,))["x"]) == 12


def test_a_file_is_written_again_with_what_was_learnt() -> None:
    file = load(FILE)
    text = with_priors(file.checked, [Lesson(file["small"], 40, LEARNT)])
    kept = FILE.replace("with tiled", "with small_prior")
    assert text.startswith(kept + "\n/// How schedules of `small` are drawn")
    assert text.endswith(
        "prior small_prior for tiled {\n"
        "    rows ~ {[4, 4]: 60, [16, 1]: 20, _: 20}\n"
        "    width ~ {8: 79, _: 21}\n"
        '    unrolled ~ {"no": 72, "yes": 8, _: 20}\n'
        "}\n"
    )
    assert format_text(Source("f", text)) == text
    task = load(text)["small"]
    assert shares(task, "unrolled")["no"] == pytest.approx(0.72 + 0.2 / 3, abs=0.08)
    # Nothing has become impossible, and the schedules of before are schedules still.
    assert task.frozen(file["small"].sample(5)).text == file["small"].sample(5).text
    for d in task.sample(0).draws:
        own = plain(task).sample(0)
        assert all(d.distribution.log_prob(o.decision) >= o.distribution.log_prob(o.decision) + -3.0
                   for o in own.draws if o.name == d.name)  # fmt: skip


def test_a_prior_of_before_is_replaced() -> None:
    file = load(FILE)
    once = with_priors(file.checked, [Lesson(file["small"], 40, LEARNT)])
    again = load(once)
    newer = (learnt("width", Categorical((4, 8), (1.0, 1.0)), (4, 0.5, 1.0)),)
    twice = with_priors(again.checked, [Lesson(again["small"], 64, newer)])
    assert twice == once.replace("{8: 79, _: 21}", "{4: 80, _: 20}").replace("40 valid", "64 valid")
    assert with_priors(load(twice).checked, [Lesson(load(twice)["small"], 64, newer)]) == twice


def test_names_that_are_taken_are_not_taken_again() -> None:
    text = FILE.replace("tiled", "small_prior")
    file = load(text)
    written = with_priors(file.checked, [Lesson(file["small"], 40, LEARNT)])
    assert "with small_prior_2\n" in written
    assert "prior small_prior_2 for small_prior {" in written
    load(written)


def test_several_tasks_have_priors_of_their_own() -> None:
    file = load(FILE + "task large = matmul(M=64, N=64, K=8)\ntask rest = matmul(M=8, N=64, K=8)\n")
    lessons = [Lesson(file[name], 40, LEARNT) for name in ("small", "large")]
    written = load(with_priors(file.checked, lessons))
    names = {name: str(written[name].space.definition.name) for name in written}
    assert names == {"small": "small_prior", "large": "large_prior", "rest": "tiled"}


def test_the_weights_of_a_prior_do_not_count_as_learnt_twice() -> None:
    file = load(FILE)
    task = load(with_priors(file.checked, [Lesson(file["small"], 40, LEARNT)]))["small"]
    bare = plain(task)
    assert bare.space.definition.prior is None and bare.sample(2).lines == file["small"].sample(2).lines
    assert plain(bare) is bare


def test_a_prior_needs_a_space() -> None:
    with pytest.raises(TschedError, match="E0227"):
        load(FILE + "prior p for tile {}\n")
    assert FLOOR == 20
