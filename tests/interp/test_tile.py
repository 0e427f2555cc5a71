"""`tile`: the splits of several loops and the order of their parts in one call; a trace has the steps."""

from pathlib import Path

import pytest

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_file, load_source
from tensorc_dsl.faces.packages import Resolver
from tensorc_dsl.interp.space import task_space
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.step import ScheduleRefusal
from tensorc_dsl.schedule.trace.trace import Trace
from tests.interp.spaces import rng

HEAD = "use std.ops.{matmul}\nschedule s for matmul {\n    let [i, j, k] = C.loops\n"
TAIL = "\n}\ntask t = matmul(M=12, N=32, K=8) with s\n"


def expand(steps: str) -> Trace:
    return task_space(load_source(Source("t.tsched", HEAD + steps + TAIL)), "t", Target()).sample(rng(1))


def findings(steps: str) -> list[Diagnostic]:
    return [d for d in load_file(Source("t.tsched", HEAD + steps + TAIL)).diagnostics if d.code.startswith("E")]


LONG = {
    "tile(i, j, [4, 16])": "split(i, [_, 4]); split(j, [_, 16]); reorder(i_0, j_0, i_1, j_1)",
    "tile([i, j], [4, 16])": "split(i, [_, 4]); split(j, [_, 16]); reorder(i_0, j_0, i_1, j_1)",
    "tile(C.loops[:2], [4, 16])": "split(i, [_, 4]); split(j, [_, 16]); reorder(i_0, j_0, i_1, j_1)",
    "tile(i, j, k, [4, 16, 2])": "split(i, [_, 4]); split(j, [_, 16]); split(k, [_, 2]); "
    "reorder(i_0, j_0, k_0, i_1, j_1, k_1)",
    "tile(i, k, [[3, 2, 2], [_, 2, 2]])": "split(i, [3, 2, 2]); split(k, [_, 2, 2]); reorder(i_0, k_0, i_1, k_1, i_2, k_2)",
    "tile(i, j, [5, [_, 7]], partial=true)": "split(i, [_, 5], partial=true); split(j, [_, 7], partial=true); "
    "reorder(i_0, j_0, i_1, j_1)",
    "tile(k, [4])": "split(k, [_, 4])",
}


@pytest.mark.parametrize("short", LONG)
def test_it_is_the_steps_that_it_stands_for(short: str) -> None:
    named = LONG[short].replace("; ", "\n")
    for loop in "ijk":
        parts = f"{loop}_0, {loop}_1" + f", {loop}_2" * (f"{loop}_2" in named)
        named = named.replace(f"split({loop},", f"let [{parts}] = split({loop},")
    found, expected = expand(short), expand(named)
    assert found.program == expected.program
    assert found.text == expected.text
    assert "tile(" not in found.text


def test_its_results_are_the_outer_parts_and_then_the_inner_ones() -> None:
    found = expand("let [i0, j0, i1, j1] = tile(i, j, [4, 16])\nparallel(i0); vectorize(j1); unroll(i1); unroll(j0)")
    for step in ("parallel(i_0)", "vectorize(j_1)", "unroll(i_1)", "unroll(j_0)"):
        assert step in found.text


def test_drawn_sizes_stay_draws() -> None:
    found = expand(
        "let rows ~ sample_perfect_tile(i, parts=2)\nlet width ~ sample_categorical([8, 16])\n"
        "tile(i, j, [rows, [_, width]])"
    )
    assert "split(i, rows)" in found.text
    assert "split(j, [_, width])" in found.text


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ("tile(i, j, [4])", "E0542: `tile`: there are 2 loops and 1 sizes"),
        ("tile([4])", "E0542: `tile`: there are 0 loops and 1 sizes"),
        (
            "split(i, [_, 4.0])",
            "E0543: `split` takes a list of an int or `_` for `factors`; this is a list whose element 2",
        ),
        ("tile()", "E0543: `tile` takes a list for `sizes`; this is nothing"),
        ("tile(i, j, [[3, 4], [4, 4, 2]])", "E0542: `tile`: the loops are cut into 2, 3 parts"),
        ("tile(i, [true])", "E0543: `split` takes"),
        ('tile([i, "j"], [4, 4])', "E0543: `tile` takes loops for `loops`; this is a string"),
    ],
)
def test_what_is_wrong_is_told(steps: str, says: str) -> None:
    with pytest.raises(TschedError) as e:
        expand(steps)
    assert says in str(e.value)


@pytest.mark.parametrize(
    ("steps", "code"),
    [("tile(i, 4)", "E0240"), ("tile(C, j, [4, 4])", "E0240"), ("tile(i, [4], whole=true)", "E0224")],
)
def test_the_checker_knows_how_it_is_called(steps: str, code: str) -> None:
    assert [d.code for d in findings(steps)] == [code]


@pytest.mark.parametrize(
    ("steps", "code"),
    [("tile(i, j, [5, 16])", "E0312"), ("tile(i, i, [4, 4])", "E0340"), ("vectorize(j)\ntile(i, j, [4, 4])", "E0310")],
)
def test_a_step_of_it_is_refused_as_ever_at_the_call(steps: str, code: str) -> None:
    with pytest.raises(ScheduleRefusal, match=code) as e:
        expand(steps)
    assert e.value.span is not None
    assert e.value.span.text.startswith("tile(")


OWN = "module tile(b: Block, n: int) { split(b.loops[0], [_, n]) }\n"


def test_a_module_of_that_name_goes_before_it() -> None:
    text = OWN + HEAD + "tile(C, 3)" + TAIL
    found = task_space(load_source(Source("t.tsched", text)), "t", Target()).sample(rng(1))
    assert "split(i, [_, 3])" in found.text


def test_a_module_of_that_name_changes_nothing_in_what_a_file_uses(tmp_path: Path) -> None:
    (tmp_path / "lib.tsched").write_text("module squares(b: Block) { tile(b.loops[0], b.loops[1], [2, 2]) }\n")
    text = "use lib.{squares}\n" + OWN + HEAD + "squares(C)" + TAIL
    file = load_file(Source("t.tsched", text), Resolver(tmp_path / "t.tsched"))
    assert file.errors == ()
    assert "reorder(i_0, j_0, i_1, j_1)" in task_space(file, "t", Target()).sample(rng(1)).text
