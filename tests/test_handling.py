"""`--replay`, `--condition`, `--block` and `--target` on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tensorc_dsl import handlers, load
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.interp.space import read_decision

TEXT = """\
compute matmul(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}

task small = matmul(M=32, N=48, K=20) with tiled
task fixed = matmul(M=32, N=48, K=20) with pinned
task wide = matmul(M=32, N=48, K=20) with vectors

target narrow = llvm(vector_bits=128)

schedule tiled for matmul {
    let [i, j, k] = C.loops
    let rows ~ sample_perfect_tile(i, parts=2, max_innermost=8)
    let order ~ sample_permutation([i, j])
    reorder(order)
    let mode ~ sample_categorical(["none", "unrolled"])
    if mode == "unrolled" { unroll(k) }
    let [i0, i1] = split(i, rows)
    either { let extra ~ sample_int(1..9); annotate(root, "x", extra) } or {}
}

module width(p: Program) { annotate(p, "x", target.vector_bits) }

module cut(b: Block) { let ks ~ sample_perfect_tile(b.loops[2], parts=2) := [5, 4]; split(b.loops[2], ks) }

space pinned for narrow { cut }

space vectors for narrow { width }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "f.tsched").write_text(TEXT, encoding="utf-8")
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def sample(*options: str) -> str:
    result = call("sample", "f.tsched", "small", "-n", "5", *options)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_condition_pins_draws(folder: Path) -> None:
    text = sample("--condition", "rows=[4, 8]", "--condition", "order=[1,0]", "--condition", 'mode="unrolled"')
    assert text.count(":= [4, 8]") == text.count(":= [1, 0]") == text.count(':= "unrolled"') == 5
    assert sample("--condition", "mode=none").count(':= "none"') == 5
    assert sample("--condition", "extra=3").count("sample_int(1..9) := 3") in range(1, 6)


@pytest.mark.parametrize(
    ("options", "status", "parts"),
    [
        (("--condition", "rows=[5, 7]"), 1, ("E0506", "`rows` cannot be [5, 7]", "2 factors with product 32")),
        (("--condition", "mode=3"), 1, ("E0506", 'one of "none", "unrolled"')),
        (("--condition", "rosw=[4, 8]"), 1, ("E0556", "no draw `rosw`", "did you mean `rows`?")),
        (("--block", "mood"), 1, ("E0556", "no draw `mood`", "did you mean `mode`?")),
        (("--condition", "rows=[4, 8"), 1, ("E0557", "no value of a draw")),
        (("--condition", "rows=1 } task x = y(M=1"), 1, ("E0557",)),
        (("--condition", "rows"), 2, ("NAME=VALUE",)),
        (("--condition", "=3"), 2, ("NAME=VALUE",)),
        (("--condition", "rosw=_"), 1, ("E0556", "no draw `rosw`", "did you mean `rows`?")),
        (("--replay", "nowhere.tsched"), 1, ("nowhere.tsched",)),
        (("--target", "narow"), 1, ("E0555", "did you mean `narrow`?")),
    ],
)
def test_mistakes_are_told_with_what_is_right(
    folder: Path, options: tuple[str, ...], status: int, parts: tuple[str, ...]
) -> None:
    result = call("sample", "f.tsched", "small", *options)
    assert result.exit_code == status, result.output
    for part in parts:
        assert part in result.output


@pytest.mark.parametrize(
    ("value", "says"),
    [("[5, 4]", ""), ("[4, 5]", "pinned to [5, 4]: it cannot be [4, 5]"), ("_", "pinned to [5, 4]: it cannot be open")],
)
def test_a_pin_in_a_module_does_not_win_in_silence(folder: Path, value: str, says: str) -> None:
    result = call("sample", "f.tsched", "fixed", "--condition", f"ks={value}")
    assert result.exit_code == (1 if says else 0), result.output
    assert says in result.output
    assert ("E0560" in result.output) == bool(says)


def test_replay_uses_the_schedule_of_a_file_and_draws_what_it_leaves_open(folder: Path) -> None:
    frozen = call("sample", "f.tsched", "small", "--seed", "4").stdout
    Path("t.tsched").write_text(frozen)
    assert sample("--replay", "t.tsched").count(frozen) == 5
    line = next(x for x in frozen.split("\n") if "let rows" in x)
    Path("open.tsched").write_text(frozen.replace(line, line.partition(" := ")[0]))
    opened = sample("--replay", "open.tsched", "--condition", "rows=[16, 2]")
    assert opened.count("[16, 2]") == 5
    assert len(set(sample("--replay", "open.tsched").split("schedule"))) > 2
    shown = call("show", "f.tsched", "small", "--stage", "trace", "--replay", "t.tsched", "--seed", "9").stdout
    assert shown == frozen


def test_a_frozen_schedule_is_opened_in_part_tuned_and_frozen_again(folder: Path) -> None:
    def tune(output: str, *options: str) -> str:
        measured = ("--trials", "6", "--strategy", "random", "--threads", "1", "--json", "--output", output)
        result = call("tune", "f.tsched", "small", *measured, *options)
        assert result.exit_code == 0, result.output
        _, schedule, _ = Path(output).read_text().split("\n\n")  # between the `use` and the task
        return f"{schedule}\n"

    def but(text: str, *names: str) -> list[str]:
        return [x for x in text.splitlines() if x and not any(x.strip().startswith(f"let {n} ~") for n in names)]

    frozen = tune("first.tsched", "--condition", "rows=[4, 8]", "--condition", "branch=0", "--condition", "extra=3")
    assert frozen.count("~") == frozen.count(":=") == 5
    # Nothing is open: there is one schedule, and it stays as it is, byte for byte.
    assert tune("same.tsched", "--replay", "first.tsched") == frozen
    # One draw is open: all others keep their decisions, and so does every step.
    drawn = sample("--replay", "first.tsched", "--condition", "rows=_").split("schedule ")[1:]
    assert len(set(drawn)) > 1
    assert {tuple(but(f"schedule {text}", "rows")) for text in drawn} == {tuple(but(frozen, "rows"))}
    second = tune("second.tsched", "--replay", "first.tsched", "--condition", "rows=_", "--condition", "extra=7")
    assert but(second, "rows", "extra") == but(frozen, "rows", "extra")
    assert second.count(":=") == 5
    assert "sample_int(1..9) := 7" in second
    assert call("replay", "f.tsched", "small", "second.tsched", "--threads", "1").exit_code == 0
    # What became of an `either` is in the steps.
    refused = call("sample", "f.tsched", "small", "--replay", "first.tsched", "--condition", "branch=_")
    assert (refused.exit_code, "E0559" in refused.output) == (1, True)
    assert "rows" in {
        d.name for d in load("f.tsched")["small"].over("first.tsched").opened(["rows"]).sample(0).open_draws
    }


def test_show_and_sample_agree(folder: Path) -> None:
    options = ("--seed", "7", "--condition", "rows=[8, 4]", "--block", "mode")
    shown = call("show", "f.tsched", "small", "--stage", "trace", *options).stdout
    assert shown == call("sample", "f.tsched", "small", *options).stdout
    assert ":= [8, 4]" in shown


def test_a_target_by_name(folder: Path) -> None:
    def width(*options: str) -> str:
        return call("sample", "f.tsched", "wide", *options).stdout

    assert '"x", 128' in width()
    assert '"x", 128' in width("--target", "narrow")
    assert '"x", 128' not in width("--target", "native") or load("f.tsched").native.vector_bits == 128


def test_the_same_in_python(folder: Path) -> None:
    task = load("f.tsched")["small"]
    fixed = task.drawn_from(handlers.block(handlers.condition(task.model, {"rows": (4, 8)}), ["mode"]))
    trace = fixed.sample(0)
    assert trace.decisions["rows"] == (4, 8)
    assert not {"rows", "mode"} & {d.name for d in trace.open_draws}
    assert load("f.tsched", target="narrow")["small"].target.vector_bits == 128
    fixed.require_draws(["rows", "mode", "extra"])
    with pytest.raises(TschedError, match="E0556"):
        fixed.require_draws(["nothing"])


def test_tune_searches_what_is_left(folder: Path) -> None:
    result = call(
        "tune", "f.tsched", "small", "--trials", "4", "--strategy", "random", "--condition", "rows=[4, 8]",
        "--condition", "branch=1", "--block", "order", "--output", "best.tsched", "--threads", "1",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert ":= [4, 8]" in Path("best.tsched").read_text()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("-3", -3),
        ("0.5", 0.5),
        ("true", True),
        ('"a b"', "a b"),
        ("i_1", "i_1"),
        ("[64, 16]", (64, 16)),
        ("[]", ()),
    ],
)
def test_values_are_read_as_pins_are(text: str, value: object) -> None:
    assert read_decision(text) == value
    assert type(read_decision(text)) is type(value)


@pytest.mark.parametrize(
    "text", ["", "[1, true]", "[1.5]", "1 + 1", "f(1)", "[[1]]", "1 }", "1; let y = 2", "_", "{1: 2}"]
)
def test_other_texts_are_no_values(text: str) -> None:
    with pytest.raises(TschedError, match="E0557"):
        read_decision(text)
