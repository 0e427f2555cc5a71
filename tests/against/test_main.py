"""The command: the tasks and peers that it accepts, and its errors for unknown ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.against import main
from bench.against.contenders import PEERS, Contender, named
from bench.against.problem import FILES, WEIGHTS, chosen
from bench.against.references import REFERENCES, expected
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.elaborate.compute import elaborate
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.inputs import make_inputs
from tests.stdlib.cases import case, case_of, library
from tests.stdlib.images import COMPUTES, LIBRARY
from tests.stdlib.references import OPERATORS

FAKE = """
from bench.against.problem import Ready
def prepare(job):
    return Ready(lambda: None, lambda: job.inputs["X"].copy())
"""


def test_json_on_one_stream_and_the_table_on_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fake.py").write_text(FAKE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(main, "OURS", Contender("ours", "fake", ("tensorc-dsl",)))
    monkeypatch.setitem(PEERS, "here", Contender("here", "fake", ("numpy",)))
    monkeypatch.setitem(PEERS, "away", Contender("away", "fake", ("no-such-package", "numpy")))
    arguments = "--ops copy --sizes 1024 --peers here,away --rounds 1 --threads 1 --json"
    with pytest.raises(SystemExit) as end:
        main.main([*arguments.split(), "--records", str(tmp_path / "records.sqlite")])
    out, err = capsys.readouterr()
    (row,) = json.loads(out)["rows"]
    assert (row["op"], row["size"], list(row["peers"])) == ("copy", "1024", ["here"])
    assert row["ours_seconds"] > 0
    assert json.loads(out)["absent"] == {"away": "no-such-package"}
    assert "absent: away (not installed: no-such-package)" in err
    assert end.value.code == 0


def test_what_there_is_not_is_named_beside_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["--ops", "gem"])
    assert "there is no operator gem; there are gemm, c2d, " in capsys.readouterr().err
    tasks = ["gemm_256", "gemm_512", "c2d_0"]
    with pytest.raises(ValueError, match="there is no size 9; there are 256, 512, 0"):
        chosen(tasks, ["gemm"], ["9"])
    with pytest.raises(ValueError, match="none of gemm has a size among 0"):
        chosen(tasks, ["gemm"], ["0"])
    with pytest.raises(ValueError, match="there is no peer nunpy; there are numpy, "):
        named(["nunpy"])


def test_sizes_are_those_of_the_operators_named() -> None:
    tasks = ["gemm_256", "gemm_512", "c2d_0", "layer_norm_512"]
    assert chosen(tasks, [], []) == tasks
    assert chosen(tasks, ["gemm", "c2d"], []) == tasks[:3]
    assert chosen(tasks, [], ["512"]) == ["gemm_512", "layer_norm_512"]
    assert chosen(tasks, ["layer_norm"], ["512"]) == ["layer_norm_512"]


def test_every_operator_has_a_reference_and_every_task_a_space() -> None:
    assert REFERENCES.keys() == WEIGHTS.keys()
    files = main.task_files(2)
    found = [main.problem_of(file, file[name]) for name, file in files.items()]
    assert {p.compute for p in found} == set(WEIGHTS)
    assert {w for p in found for w in p.weights} <= {name for p in found for name in p.types}
    assert len({p.op for p in found}) > 15
    assert [c.name for c in named(["numpy", "torch", "numpy"])] == ["numpy", "torch"]


def test_weights_are_constants_for_ours_too() -> None:
    for name, file in main.task_files(2).items():
        task = file[name]
        constant = tuple(b.name for b in task.program.inputs if b.constant)
        # Of the vectors of layer_norm there is nothing to prepare.
        expected = () if name.startswith("layer_norm") else main.problem_of(file, task).weights
        assert constant == expected, name


OF_ONE_SIDE = ("stride_", "pad_", "dilation_", "same")


@pytest.mark.parametrize("name", sorted(REFERENCES.keys() & (OPERATORS.keys() | COMPUTES.keys())))
def test_references_agree_with_those_of_the_library(name: str) -> None:
    operator, file = (OPERATORS[name], library()) if name in OPERATORS else (COMPUTES[name], LIBRARY)
    for number, sizes in enumerate(operator.sizes):
        c = case_of(operator, file, name, number)
        types = {b.name: b.dtype.name for b in c.program.inputs}
        # No task of the comparison has other strides or borders along one dimension than along another.
        if "f16" in types.values() or "eps" in sizes or any(n.startswith(OF_ONE_SIDE) for n in sizes):
            continue
        problem = main.Problem("", f"{name}_{number}", name, dict(sizes), types)
        (found,), tolerance = expected(problem, c.inputs)
        np.testing.assert_allclose(found, c.expected, rtol=1e-9, atol=1e-9)
        assert tolerance >= 0


@pytest.mark.corpus
@pytest.mark.parametrize("shape", [(31, 18), (17, 41)])
@pytest.mark.parametrize("name", ["gauss_terms", "gauss_taps", "unsharp_planes", "harris_planes", "laplacian_pyramid"])
def test_references_agree_with_pipelines_of_stencils(name: str, shape: tuple[int, int]) -> None:
    file = load_source(Source.read(FILES[1]))
    program = elaborate(file.computes[name], dict(zip("HW", shape, strict=True)), name, file.library)
    inputs = make_inputs(program, 0)
    problem = main.Problem("", f"{name}_0", name, {}, {b.name: b.dtype.name for b in program.inputs})
    found, tolerance = expected(problem, inputs)
    by_program = evaluate(program, inputs)
    for b, right in zip(program.outputs, found, strict=True):
        assert np.abs(by_program[b.name] - right).max() <= tolerance


@pytest.mark.parametrize(
    ("name", "number", "share"),
    [("matmul", 0, 1e-5), ("matmul", -1, 1e-2), ("norm_bmn", 0, 5e-3), ("softmax", 0, 1e-5)],
)
def test_errors_are_held_against_the_largest_result(name: str, number: int, share: float) -> None:
    c = case(name, number)
    problem = main.Problem("", f"{name}_0", name, {}, {b.name: b.dtype.name for b in c.program.inputs})
    (found,), tolerance = expected(problem, c.inputs)
    assert tolerance == pytest.approx(share * np.abs(found).max())
