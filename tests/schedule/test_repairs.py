"""A refusal states facts of the program that it shows, and its repair works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.api import load
from tensorc_dsl.proof.equivalence.validate import Valid

LARGER = "reducer larger(a, b) = a if a > b else b identity -inf assume associative, commutative\n"
PICK = "compute c(A: f32[M, N]) -> Y: f32[M] { let p[i] = argmax[k] A[i, k]; Y[i] = f32(p[i]) }"
SCAN = (
    "compute c(A: f32[T, N]) -> Y: f32[T, N] {\n"
    "    let s[t, i] = scan[t] init A[0, i] step s[t - 1, i] + A[t, i]\n    Y[t, i] = exp(s[t, i])\n}"
)
PLAIN = "compute c(A: f32[M, N]) -> Y: f32[M, N] { let P[i, j] = A[i, j] + 1.0; Y[i, j] = exp(P[i, j]) }"


def told(folder: Path, definitions: str, steps: str, sizes: str = "M=8, N=64") -> tuple[str, str, str] | None:
    """The code, the message and the help that a schedule is refused with; None where it is taken."""
    file = folder / "x.tsched"
    file.write_text(f"{definitions}\nschedule s for c {{ {steps} }}\ntask t = c({sizes}) with s\n")
    try:
        load(file)["t"].check()
    except TschedError as e:
        (d,) = e.diagnostics
        return d.code, d.message, " ".join(n.text for n in d.notes if n.kind == "help")
    return None


@pytest.mark.parametrize("value", ["2.0 * A[i, k]", "A[i, k] + 1", "abs(A[i, k])", "A[i, k] * A[i, k]", "-A[i, k]"])
def test_a_computed_value_of_a_reducer_has_partial_results(tmp_path: Path, value: str) -> None:
    steps = "let [i, k] = Y.loops; let [k0, k1] = split(k, [_, 16]); rfactor(Y, k1)"
    compute = f"{LARGER}compute c(A: f32[M, N]) -> Y: f32[M] {{ Y[i] = reduce larger[k] {value} }}"
    assert told(tmp_path, compute, steps) is None
    task = load(tmp_path / "x.tsched")["t"]
    assert isinstance(task.verify(task.check()), Valid)


def test_a_scan_moves_with_all_of_its_steps(tmp_path: Path) -> None:
    assert told(tmp_path, SCAN, "compute_at(s, Y.loops[0])", "T=9, N=4") == (
        "E0354",
        "cannot compute `s` again at each use: it is a scan, and each iteration of `t_1` would run all of its steps",
        "choose a loop outside of `t_1`, each iteration of which reads other columns",
    )
    assert told(tmp_path, SCAN, "reorder(Y.loops[1], Y.loops[0]); compute_at(s, Y.loops[0])", "T=9, N=4") is None
    assert (
        told(tmp_path, SCAN, "reorder(s.loops[1], s.loops[0]); reverse_compute_at(Y, s.loops[0])", "T=9, N=4") is None
    )


def test_a_position_and_its_value_move_together(tmp_path: Path) -> None:
    assert told(tmp_path, PICK, "compute_at(p, Y.loops[0])") is None
    assert told(tmp_path, PICK, "reverse_compute_at(Y, p.loops[0])") is None


@pytest.mark.parametrize(
    ("made", "moved", "block"),
    [
        ("let f = fuse(P.loops[0], P.loops[1]); split(f, [4, _], partial=true)", "compute_at(P, Y.loops[1])", "P"),
        ("split(P.loops[0], [4, _], partial=true)", "compute_at(P, Y.loops[0])", "P"),
        (
            "let f = fuse(Y.loops[0], Y.loops[1]); split(f, [4, _], partial=true)",
            "reverse_compute_at(Y, P.loops[1])",
            "Y",
        ),
    ],
)
def test_a_block_that_runs_everywhere_is_not_said_to_leave_out_a_part(
    tmp_path: Path, made: str, moved: str, block: str
) -> None:
    refused = told(tmp_path, PLAIN, f"{made}; {moved}", "M=1..64, N=32")
    assert refused is not None
    code, message, repair = refused
    assert code == "E0359"
    assert (
        f"cannot move `{block}` below" in message
        and "with which values it runs now cannot be told of `vi = " in message
    )
    assert (
        repair == "no loop may be multiplied by an open size: split it by numbers, or move the block before that step"
    )
    assert told(tmp_path, PLAIN, f"{made.replace('[4, _]', '[_, 4]')}; {moved}", "M=1..64, N=32") is None
    assert told(tmp_path, PLAIN, moved, "M=1..64, N=32") is None
