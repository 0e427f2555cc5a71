"""Models beside the ONNX files that they were imported from."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper

from tensorc_dsl.faces.api import model_timing
from tensorc_dsl.faces.api.model_timing import compare_model, quartiles_of
from tensorc_dsl.faces.api.models import import_onnx, load_model
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.tuning.measure import in_context


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(in_context, "PAUSE", 0.0)
    monkeypatch.setattr(model_timing, "TURNS_SECONDS", 0.0)
    x, k = (helper.make_tensor_value_info(n, t, s) for n, t, s in (
        ("in put", TensorProto.FLOAT, [3, "N"]), ("k", TensorProto.FLOAT, []),
    ))  # fmt: skip
    ends = [onnx.ValueInfoProto(name=n) for n in ("y", "z")]
    nodes = [helper.make_node("Mul", ["in put", "k"], ["y"]), helper.make_node("Sqrt", ["in put"], ["z"])]
    graph = helper.make_graph(nodes, "net", [x, k], ends)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), "net.onnx")
    import_onnx("net.onnx", shapes={"in put": (3, 5)}, values={"k": 2.5})


def call(*words: str) -> Result:
    return CliRunner().invoke(main, ["compare", "net.tsched", "net.onnx", "--threads", "1", *words])


def test_outputs_and_times_are_those_of_both() -> None:
    done = call("--set", "k=2.5", "--json", "--within", "0.01%")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["threads"] == 1 and told["runtime"].startswith("ONNX Runtime ") and told["ratio"] > 0
    first, second = told["outputs"]
    assert first["output"] == "y" and first["relative"] < 1e-6
    # Square roots of negative numbers are NaN in both.
    assert second["unlike"] == 0 and second["absolute"] < 1e-5
    assert len(told["times"]) == len(told["their_times"]) >= 3
    assert "times as fast as ONNX Runtime" in call("--set", "k=2.5").stdout


def test_another_value_is_a_difference_that_is_told_with_its_place() -> None:
    done = call("--set", "k=2", "--within", "1%")
    assert done.exit_code == 1 and "an output is further off" in done.stderr
    found = compare_model(load_model("net.tsched", threads=1), "net.onnx", values={"k": 2.0})
    y = found.differences[0]
    assert y.relative == pytest.approx(0.25) and y.absolute == pytest.approx(abs(y.made - y.wanted))
    assert y.made == pytest.approx(1.25 * y.wanted) and len(y.where) == 2


def test_numbers_in_one_only_are_unlike() -> None:
    made, wanted = np.array([1.0, np.nan, np.inf]), np.array([1.0, 2.0, np.inf])
    found = model_timing._difference("y", made, wanted)  # pyright: ignore[reportPrivateUsage]
    assert (found.unlike, found.where, found.absolute) == (1, (1,), np.inf)
    same = model_timing._difference("y", wanted, wanted)  # pyright: ignore[reportPrivateUsage]
    assert (same.unlike, same.absolute, same.relative) == (0, 0.0, 0.0)
    none = model_timing._difference("y", np.zeros((0, 2)), np.zeros((0, 2)))  # pyright: ignore[reportPrivateUsage]
    assert none.where == () and none.absolute == 0.0
    assert quartiles_of((1.0, 2.0, 3.0, 4.0, 5.0)) == (2.0, 3.0, 4.0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "`net.onnx` has the inputs in put, k, and the model in_put"),
        (("--set", "j=1"), "`net.onnx` has the inputs in put, k, and the model in_put, j"),
        (("--with", "openvino", "--set", "k=1"), "`openvino` is not installed"),
    ],
)
def test_what_does_not_fit(words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    done = call(*words)
    assert done.exit_code == 1 and "error[E0944]" in done.stderr and said in done.stderr, done.stderr


def test_files_that_cannot_be_run() -> None:
    Path("net.onnx").write_bytes(b"no model")
    assert "error[E0944]: ONNX Runtime" in call().stderr
    Path("net.onnx").unlink()
    assert "there is no such file" in call().stderr
