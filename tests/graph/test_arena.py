"""Where the values of a model lie: no two that are needed at once share memory, and the arena is near its lower bound."""

from __future__ import annotations

import random
from math import prod

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.models import Call, ModelPlan, View, shape_of
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.packages import Resolver
from tensorc_dsl.graph.arena import Arrangement, Block, Copy, Place, PlacedCall, arranged, most_at_once, packed

COMPUTES = """
compute relu(X: f32[N]) -> Y: f32[N] { Y[i] = max(X[i], 0.0) }
compute add(A: f32[N], B: f32[N]) -> Y: f32[N] { Y[i] = A[i] + B[i] }
compute both(X: f32[N]) -> Y: f32[N], Z: f32[N] {
    Y[i] = -X[i]
    Z[i] = X[i] * 2.0
}
"""


def plan_of(model: str) -> ModelPlan:
    checked = load_source(Source.of(f"{COMPUTES}\n{model}".encode(), "m.tsched"), Resolver("m.tsched", ()))
    return checked.plans["m"]


def placed(model: str) -> tuple[ModelPlan, Arrangement]:
    plan = plan_of(model)
    return plan, arranged(plan)


def calls(found: Arrangement) -> list[PlacedCall]:
    return [s for s in found.steps if isinstance(s, PlacedCall)]


def blocks(rng: random.Random, count: int, sizes: list[int]) -> list[Block]:
    made: list[Block] = []
    for _ in range(count):
        first = rng.randrange(count)
        made.append(Block(64 * rng.choice(sizes), first, first + rng.choice([0, 1, 1, 2, 3, 5, count // 2])))
    return made


def require_apart(some: list[Block], offsets: list[int], end: int) -> None:
    for k, a in enumerate(some):
        assert offsets[k] >= 0 and offsets[k] + a.size <= end and offsets[k] % 64 == 0
        for j, b in enumerate(some[:k]):
            at_once = a.first <= b.last and b.first <= a.last
            assert not at_once or offsets[k] + a.size <= offsets[j] or offsets[j] + b.size <= offsets[k]


@pytest.mark.parametrize("sizes", [[1], [1, 2, 3], [0, 1, 4, 7, 50, 51, 52], list(range(1, 40))])
def test_blocks_that_are_needed_at_once_are_apart(sizes: list[int]) -> None:
    rng = random.Random(str(sizes))
    for count in (0, 1, 2, 3, 5, 17, 40, 90):
        for _ in range(4):
            some = blocks(rng, count, sizes)
            offsets, end = packed(some)
            require_apart(some, offsets, end)
            assert most_at_once(some) <= end <= 1.2 * most_at_once(some)


def test_a_layout_that_the_first_order_misses_is_found() -> None:
    # By size alone the blocks of 3 are placed first, and one of the others is on top of them.
    some = [Block(192, 0, 1), Block(192, 2, 3), Block(128, 1, 2), Block(64, 0, 0), Block(128, 3, 4), Block(192, 4, 5)]
    assert packed(some)[1] == most_at_once(some)


def test_memory_is_used_again() -> None:
    plan, found = placed("""
model m(x: f32[100]) -> y: f32[100] {
    let a = relu(x)
    let b = relu(a)
    let c = relu(b)
    let d = relu(c)
    y = relu(d)
}
""")
    assert found.size == found.bound == 2 * 448
    first, second, third, _, last = calls(found)
    assert first.arguments == (Place("input", "x", 0),) and last.results == (Place("output", "y", 0),)
    assert first.results == third.results != second.results and second.arguments == first.results
    assert plan.outputs == ("y",)


def test_views_have_the_memory_of_what_they_view() -> None:
    _, found = placed("""
model m(x: f32[6]) -> y: f32[6] {
    let a = relu(x)
    let b = reshape(a, [2, 3])
    let c = reshape(b, [3, 2])
    let other = relu(x)
    let d = reshape(c, [6])
    y = add(d, other)
}
""")
    first, second, last = calls(found)
    assert last.arguments == (first.results[0], second.results[0])
    assert first.results != second.results and found.size == 128


def test_an_output_is_computed_where_the_caller_wants_it() -> None:
    _, found = placed("""
model m(x: f32[6]) -> y: f32[2, 3], z: f32[6], same: f32[6], back: f32[3, 2] {
    let a = relu(x)
    y = reshape(a, [2, 3])
    z = relu(a)
    same = reshape(y, [6])
    back = reshape(x, [3, 2])
}
""")
    assert found.size == 0
    y = Place("output", "y", 0)
    assert [c.results for c in calls(found)] == [(y,), (Place("output", "z", 0),)] and calls(found)[1].arguments == (y,)
    assert [s for s in found.steps if isinstance(s, Copy)] == [
        Copy(y, Place("output", "same", 0), 24),
        Copy(Place("input", "x", 0), Place("output", "back", 0), 24),
    ]


def test_what_is_dropped_has_memory_for_its_call_alone() -> None:
    _, found = placed("""
model m(x: f32[6]) -> y: f32[6] {
    let (_, a) = both(x)
    let (b, unused) = both(a)
    let (c, _) = both(b)
    y = add(a, b)
}
""")
    for c in calls(found):
        assert len({*c.arguments, *c.results}) == len(c.arguments) + len(c.results)
    assert found.size == found.bound == 4 * 64


def test_values_without_elements_have_no_memory() -> None:
    _, found = placed("""
model m(x: f32[0]) -> y: f32[0] {
    let a = relu(x)
    let b = relu(a)
    y = add(a, b)
}
""")
    assert found.size == found.bound == 0


def random_model(rng: random.Random) -> str:
    """A model of calls, views, dropped and unused values; some outputs are used inside."""
    values = [("x", 12)]
    lines: list[str] = []
    for n in range(rng.randint(1, 25)):
        name, size = rng.choice(values)
        kind = rng.randrange(4)
        if kind == 0:
            lines.append(f"let v{n} = reshape({name}, [{size}])")
        elif kind == 1:
            lines.append(f"let (v{n}, {rng.choice(['_', f'w{n}'])}) = both({name})")
        else:
            second = rng.choice([other for other, s in values if s == size])
            lines.append(f"let v{n} = {f'add({name}, {second})' if kind == 2 else f'relu({name})'}")
        values.append((f"v{n}", size))
    ends = sorted(rng.sample(range(len(lines)), min(len(lines), 3)))
    for k in ends:
        if "(v" not in lines[k].partition("=")[0]:
            lines[k] = lines[k].removeprefix("let ")
    outputs = [line.split()[0] for line in lines if not line.startswith("let")]
    if not outputs:
        lines.append("y = relu(x)")
        outputs = ["y"]
    declared = ", ".join(f"{o}: f32[12]" for o in outputs)
    body = "\n    ".join(lines)
    return f"model m(x: f32[12]) -> {declared} {{\n    {body}\n}}\n"


def simulated(plan: ModelPlan, found: Arrangement) -> None:
    """Run the steps on symbols: each argument is what the plan says, wherever it lies."""
    sizes = {n: prod(shape_of(b)) * b.dtype.bytes for n, b in plan.values.items()}
    memory: dict[tuple[str, str, int], str] = {("input", n, 0): n for n in plan.inputs}
    content = {n: n for n in plan.inputs}

    def key(p: Place) -> tuple[str, str, int]:
        return (p.base, p.name, p.offset)

    steps = iter(calls(found))
    copies = {s.target.name: s for s in found.steps if isinstance(s, Copy)}
    for number, step in enumerate(plan.steps):
        match step:
            case Call(arguments=arguments, results=results):
                call = next(steps)
                for name, p in zip(arguments, call.arguments, strict=True):
                    assert memory[key(p)] == content[name], (step, found)
                for k, (name, p) in enumerate(zip(results, call.results, strict=True)):
                    size = sizes.get(name, 48)
                    for other in [o for o in memory if o[:2] == key(p)[:2] and abs(o[2] - p.offset) < size]:
                        del memory[other]
                    memory[key(p)] = content[name] = f"{number}.{k}"
            case View(argument=argument, result=result):
                content[result] = content[argument]
                if (copy := copies.get(result)) is not None:
                    memory[key(copy.target)] = memory[key(copy.source)]
    for name in plan.outputs:
        assert memory["output", name, 0] == content[name], (name, found)


def test_every_argument_is_still_there_when_it_is_read() -> None:
    rng = random.Random(5)
    for _ in range(60):
        plan, found = placed(random_model(rng))
        simulated(plan, found)
        assert found.bound <= found.size <= 1.2 * found.bound
