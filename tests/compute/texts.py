"""Computes as text, and the library's own, for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tensorc_dsl.base.diagnostic import TschedError, render
from tensorc_dsl.base.source import Source
from tensorc_dsl.elaborate.bindings import Bound
from tensorc_dsl.elaborate.compute import check, elaborate
from tensorc_dsl.elaborate.names import Definitions, Library
from tensorc_dsl.ir.expr import Const, children
from tensorc_dsl.ir.program import Program, blocks
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.syntax.parse import parse
from tensorc_dsl.syntax.tree import ComputeDef, ReducerDef

OPS = Path(__file__).parents[2] / "stdlib" / "ops"


def compute(text: str) -> ComputeDef:
    """The one compute of a file."""
    (item,) = parse(Source("t.tsched", text)).items
    assert isinstance(item, ComputeDef)
    return item


def std(name: str) -> ComputeDef:
    """The compute of a file of `stdlib/ops`."""
    return compute((OPS / f"{name}.tsched").read_text())


def parsed(text: str) -> tuple[ComputeDef, Library]:
    """The last compute of a text, and all that the text defines."""
    file = parse(Source("t.tsched", text))
    computes: dict[str, ComputeDef] = {i.name: i for i in file.items if isinstance(i, ComputeDef)}
    reducers: dict[str, ReducerDef] = {i.name: i for i in file.items if isinstance(i, ReducerDef)}
    return list(computes.values())[-1], Library({"t.tsched": Definitions(computes, reducers)})


def build(text: str, **bindings: Bound) -> Program:
    """The verified program of the last compute of a text."""
    defn, library = parsed(text)
    return made(defn, library, **bindings)


def made(defn: ComputeDef, library: Library | None = None, /, **bindings: Bound) -> Program:
    program = elaborate(defn, bindings, library=library)
    verify(program)
    return program


def literals(program: Program) -> set[Const]:
    """The literals in the values that are stored, those in their subscripts too."""
    found: set[Const] = set()
    stack = [s.value for b in blocks(program) for s in b.body]
    while stack:
        top = stack.pop()
        stack += children(top)
        if isinstance(top, Const):
            found.add(top)
    return found


def run(program: Program, seed: int = 0) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Random inputs and the reference's outputs, which the interpreter confirms."""
    inputs = make_inputs(program, seed)
    outputs = evaluate(program, inputs)
    for name, got in interpret(program, inputs).items():
        np.testing.assert_allclose(got, outputs[name], rtol=1e-12, atol=1e-12)
    return inputs, outputs


def errors(text: str, **bindings: Bound) -> list[str]:
    """The rendered findings of an elaboration that must fail."""
    defn, library = parsed(text)
    try:
        elaborate(defn, bindings, library=library)
    except TschedError as e:
        return [render(d) for d in e.diagnostics]
    raise AssertionError("this elaborates")


def codes(text: str, **bindings: Bound) -> list[str]:
    return [e.split("[")[1].split("]")[0] for e in errors(text, **bindings)]


def checked(text: str) -> list[str]:
    """The rendered findings of a check without bindings."""
    return [render(d) for d in check(*parsed(text))]
