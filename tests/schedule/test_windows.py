"""Windows that a loop moves by any number of rows, or by fractions of one, against the interpreter; and faults in them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.expr import index, sub
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.verify import verify
from tensorc_dsl.proof.equivalence.validate import Valid, validate
from tensorc_dsl.reference.inputs import make_inputs
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.nests import dimension_modulo
from tensorc_dsl.schedule.primitives.compute_at import compute_at
from tensorc_dsl.schedule.primitives.rolling_buffer import rolling_buffer
from tensorc_dsl.schedule.primitives.split import split
from tensorc_dsl.schedule.step import BlockRef, LoopRef, ScheduleRefusal

rolling_buffer_module = importlib.import_module("tensorc_dsl.schedule.primitives.rolling_buffer")

STEPS = ((1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (1, 3), (2, 3), (3, 2))
SIZES = (1, 2, 3, 7, 13, 17, 19, 23, 29, 31)


def subscript(rng: Random, v: str, size: int, step: tuple[int, int]) -> str:
    """A row of a stage with `size` rows that `v` reads, some steps away."""
    p, q = step
    place = f"{v} * {p} / {q} + {rng.randint(-2, 2)}"
    if rng.random() < 0.2:
        place = f"{v} % {q} * 2 + {place}"
    last = size - 1
    if rng.random() < 0.1:
        return f"min(({place} + 4) % {2 * size}, {last})"  # a window that moves back, or jumps
    return f"min(max({place}, 0), {last})"


def chain(seed: int) -> tuple[Program, int]:
    """Two stages and a result of any sizes, each of which reads some rows of the one before."""
    rng = Random(seed)
    sizes = [rng.choice(SIZES) for _ in range(3)]
    steps = [rng.choice(STEPS) for _ in range(2)]

    def reads(name: str, v: str, size: int, step: tuple[int, int]) -> str:
        count = rng.randint(1, 3)
        return " + ".join(f"{k + 1}.0 * {name}[{subscript(rng, v, size, step)}]" for k in range(count))

    a, b, y = sizes
    text = f"""program p(X: f32[{a}], Y: f32[{y}]) {{
    buffer A: f32[{a}]
    buffer B: f32[{b}]
    for i in {a} {{
        block A {{
            spatial v in {a} = i
            A[v] = X[v] + 1.0
        }}
    }}
    for j in {b} {{
        block B {{
            spatial v in {b} = j
            B[v] = {reads("A", "v", a, steps[0])}
        }}
    }}
    for k in {y} {{
        block Y {{
            spatial v in {y} = k
            Y[v] = {reads("B", "v", b, steps[1])}
        }}
    }}
}}
"""
    found = parse_program(Source("p.tsched", text))
    verify(found)
    return found, rng.choice([2, 3, 4, 5, 8])


def rolled(program: Program, height: int) -> tuple[Program, list[str]]:
    """The chain in strips of that height, with each stage in the loop over rows that can be there and is kept."""
    cut = split(program, LoopRef("k"), (None, height), partial=True)
    rows = cut.results[1]
    done: list[str] = []
    out = cut.program
    for step in ("compute_at B", "compute_at A", "rolling_buffer A", "rolling_buffer B"):
        name, block = step.split()
        try:
            out = (compute_at if name == "compute_at" else rolling_buffer)(out, BlockRef(block), rows).program
        except ScheduleRefusal:
            continue
        done.append(step)
    return out, done


def same(before: Program, after: Program) -> bool:
    inputs = make_inputs(before, 1)
    return np.array_equal(interpret(before, inputs)["Y"], interpret(after, inputs)["Y"])


@pytest.mark.corpus
@pytest.mark.parametrize("first", range(0, 72, 6))
def test_windows_at_any_steps_are_right_and_proved(first: int) -> None:
    for seed in range(first, first + 6):
        before, height = chain(seed)
        after, _ = rolled(before, height)
        verify(after)
        assert same(before, after), seed
        assert isinstance(validate(before, after), Valid), seed


def test_windows_of_random_chains_are_kept() -> None:
    done = [step for seed in range(40) for step in rolled(*chain(seed))[1]]
    assert done.count("rolling_buffer A") > 3
    assert done.count("rolling_buffer B") > 3


WINDOW = """program p(X: f32[{n}], Y: f32[{m}]) {{
    buffer A: f32[{n}]
    for i in {n} {{
        block A {{
            spatial v in {n} = i
            A[v] = X[v] + 1.0
        }}
    }}
    for k in {m} {{
        block Y {{
            spatial v in {m} = k
            Y[v] = A[{place}] + 2.0 * A[{place} + 1] - A[{place} + 3]
        }}
    }}
}}
"""

FAULTS: dict[str, Callable[[Any], Any]] = {
    "a window one row short": lambda w: replace(w, size=w.size - 1),
    "a first part without its last row": lambda w: replace(w, first=w.first - 1),
    "a move that is one row too short": lambda w: replace(w, moved=sub(w.moved, index(1))),
    "one new row too few": lambda w: replace(w, step=w.step - 1),
}


def window(step: tuple[int, int]) -> Program:
    """A result that reads rows of one stage, by that step."""
    p, q = step
    n = 40 * p // q + 4
    return parse_program(Source("p.tsched", WINDOW.format(n=n, m=40, place=f"v * {p} / {q}")))


@pytest.mark.corpus
@pytest.mark.parametrize("step", [(1, 1), (2, 1), (3, 1), (1, 2), (1, 3), (2, 3), (3, 2)])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_window_is_refused(fault: str, step: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    placed = compute_at(window(step), BlockRef("A"), LoopRef("k")).program
    right = rolling_buffer_module._window
    monkeypatch.setattr(rolling_buffer_module, "_window", lambda *a: FAULTS[fault](right(*a)))
    with pytest.raises(ScheduleRefusal):
        rolling_buffer(replace(placed, name="faulty"), BlockRef("A"), LoopRef("k"))


@pytest.mark.parametrize("step", [(1, 1), (2, 1), (3, 1), (1, 2), (1, 3), (2, 3), (3, 2)])
def test_too_few_places_are_not_proved(step: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    before = window(step)
    placed = compute_at(before, BlockRef("A"), LoopRef("k")).program
    right = rolling_buffer(placed, BlockRef("A"), LoopRef("k")).program
    assert isinstance(validate(before, right), Valid)
    monkeypatch.setattr(
        rolling_buffer_module, "dimension_modulo", lambda p, b, axis, size: dimension_modulo(p, b, axis, size - 1)
    )
    wrong = rolling_buffer(replace(placed, name="faulty"), BlockRef("A"), LoopRef("k")).program
    assert not isinstance(validate(before, wrong), Valid)
