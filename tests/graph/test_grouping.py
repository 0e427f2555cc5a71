"""Calls of a model are joined by rules: what a joined model computes, what the rules of the library join, what is refused."""

from __future__ import annotations

import random
from math import prod
from pathlib import Path

import numpy as np
import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.models import Call, ModelPlan, shape_of
from tensorc_dsl.check.scope import CheckedFile, load_source
from tensorc_dsl.graph.grouping import Grouped, graph_space, grouped
from tensorc_dsl.ir.arrays import Array
from tensorc_dsl.ir.graph import Graph, split_places
from tensorc_dsl.ir.target import Target
from tensorc_dsl.reference.evaluate import evaluate
from tensorc_dsl.schedule.trace import handlers
from tensorc_dsl.schedule.trace.trace import prior

COMPUTES = """
compute relu(X: f32[M, N]) -> Y: f32[M, N] { Y[i, j] = max(X[i, j], 0.0) }
compute sig(X: f32[M, N]) -> Y: f32[M, N] { Y[i, j] = sigmoid(X[i, j]) }
compute scaled(X: f32[M, N]; by: float = 2.0) -> Y: f32[M, N] { Y[i, j] = X[i, j] * by }
compute add(X: f32[M, N], Z: f32[M, N]) -> Y: f32[M, N] { Y[i, j] = X[i, j] + Z[i, j] }
compute mul(X: f32[M, N], Z: f32[M, N]) -> Y: f32[M, N] { Y[i, j] = X[i, j] * Z[i, j] }
compute turn(X: f32[M, N]) -> Y: f32[N, M] { Y[i, j] = X[j, i] }
compute dense(X: f32[M, K], W: const f32[K, N]) -> Y: f32[M, N] { Y[i, j] = sum[k] X[i, k] * W[k, j] }
compute soft(X: f32[M, N]) -> Y: f32[M, N] {
    let m[i] = max[j] X[i, j]
    let e[i, j] = exp(X[i, j] - m[i])
    let s[i] = sum[j] e[i, j]
    Y[i, j] = e[i, j] / s[i]
}
compute halves(X: f32[M, N]) -> L: f32[M, N], R: f32[M, N] { L[i, j] = 0.5 * X[i, j]; R[i, j] = X[i, j] - 1.0 }
compute flat(X: f32[L]) -> Y: f32[L] { Y[i] = -X[i] }
"""
SIZES = ((1, 12), (3, 4), (4, 3), (1, 12), (2, 6))


def loaded(model: str, rules: str = "use std.graph") -> CheckedFile:
    return load_source(Source("net.tsched", f"{rules}\n{COMPUTES}\n{model}"))


def by_rules(model: str, rules: str = "use std.graph") -> Grouped:
    return grouped(loaded(model, rules), "net", Target())


def run(plan: ModelPlan, seed: int) -> dict[str, Array]:
    """The outputs of a plan, by the reference."""
    rng = np.random.default_rng(seed)
    values = {n: rng.standard_normal(shape_of(plan.values[n])) for n in (*plan.inputs, *plan.weights)}
    for step in plan.steps:
        if isinstance(step, Call):
            program = plan.programs[step.task]
            given = dict(zip((p.name for p in program.inputs), (values[a] for a in step.arguments), strict=True))
            made = evaluate(program, given)
            for result, p in zip(step.results, program.outputs, strict=True):
                assert result == "_" or made[p.name].shape == shape_of(plan.values[result])
                values[result] = made[p.name]
        else:
            values[step.result] = values[step.argument].reshape(shape_of(plan.values[step.result]))
    return {n: values[n] for n in plan.outputs}


def random_model(rng: random.Random, length: int) -> str:
    """Diamonds, fan-out, results that are dropped, views, and outputs that are used inside."""
    shapes: dict[str, tuple[int, ...]] = {"x": rng.choice(SIZES), "y": rng.choice(SIZES)}
    weights: dict[str, tuple[int, ...]] = {}
    lines: list[str] = []
    for n in range(length):
        a = rng.choice([*shapes][-rng.choice((1, 2, 5)) :])
        one, v = shapes[a], f"v{n}"
        if len(one) == 1:
            lines.append(f"let {v} = flat({a})")
            shapes[v] = one
            continue
        twin = rng.choice([b for b in shapes if shapes[b] == one])
        match rng.randrange(11):
            case 0 | 1:
                text, made = f"{rng.choice(('relu', 'sig', 'soft', 'scaled'))}({a})", one
            case 2 | 3:
                text, made = f"{rng.choice(('add', 'mul'))}({a}, {twin})", one
            case 4:
                text, made = f"turn({a})", (one[1], one[0])
            case 5:
                made = (one[0], rng.choice((1, 3, 4)))
                weights[f"w{n}"] = (one[1], made[1])
                text = f"dense({a}, w{n})"
            case 6 | 9 | 10:
                made = rng.choice([s for s in (*SIZES, (12,)) if prod(s) == prod(one)] or [one])
                text = f"reshape({a}, {list(made)})"
            case 7:
                lines.append(f"let ({v}, {rng.choice(('_', f'{v}r'))}) = halves({a})")
                if not lines[-1].startswith(f"let ({v}, _)"):
                    shapes[f"{v}r"] = one
                shapes[v] = one
                continue
            case _:
                text, made = f"scaled({a}, by={rng.choice((0.5, -3.0))})", one
        lines.append(f"let {v} = {text}")
        shapes[v] = made
    computed = [line.removeprefix("let ").partition(" =")[0] for line in lines if not line.startswith("let (")]
    ends = {*rng.sample(computed, min(2, len(computed)))} or {"end"}
    lines = [
        line.removeprefix("let ") if line.startswith(tuple(f"let {e} =" for e in ends)) else line for line in lines
    ]
    if "end" in ends:
        last = list(shapes)[-1]
        lines.append(f"end = {'relu' if len(shapes[last]) == 2 else 'flat'}({last})")
        shapes["end"] = shapes[last]
    inputs = ", ".join(f"{v}: f32{list(shapes[v])}" for v in "xy")
    outputs = ", ".join(f"{v}: f32{list(shapes[v])}" for v in shapes if v in ends)
    stored = ", ".join(f"{w}: f32{list(s)}" for w, s in weights.items())
    clause = f'weights "none" sha256 "{"0" * 64}" ({stored})' if weights else ""
    body = "".join(f"    {line}\n" for line in lines)
    return f"model net({inputs}) -> {outputs} {clause} {{\n{body}}}"


ANY = """
module any_of(c: Node) {
    for p in c.producers { maybe(60) near { try { join_nodes(p, p.between(c), c) } } }
    for p in root.nodes[:3] { maybe(20) far { try { join_nodes(p, c) } } }
}
space anyhow for graph { any_of }
"""


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(40))
def test_a_joined_model_computes_the_same(seed: int) -> None:
    rng = random.Random(seed)
    text = random_model(rng, rng.randrange(2, 14))
    file = loaded(text, ANY if seed % 2 else "use std.graph")
    plan = file.plans["net"]
    made = grouped(file, "net", Target(), decide=prior(np.random.default_rng(seed)))
    wanted, found = run(plan, seed), run(made.plan, seed)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12, err_msg=f"{text}\n{made.trace}")


def names(made: Grouped) -> list[str]:
    return [step.task for step in made.plan.steps if isinstance(step, Call)]


def test_what_goes_through_one_call_joins_it() -> None:
    made = by_rules("""
        model net(x: f32[3, 4], w: f32[4, 4], u: f32[4, 4]) -> y: f32[3, 4], z: f32[3, 4] {
            let h = dense(x, w)
            let s = sig(h)
            let a = mul(h, s)
            let g = dense(a, u)
            let r = add(g, a)
            y = relu(r)
            let k = dense(x, u)
            z = relu(k)
        }
    """)
    assert names(made) == ["dense_sig_mul", "dense_add_relu", "dense_relu"]
    assert "let v_2 = sig(v)" in next(iter(made.computes.values())).span.source.text
    # The result of `mul` is read outside of its group, and is its only output.
    assert made.plan.steps[0] == Call("dense_sig_mul", ("x", "w"), ("a",))


def test_equal_groups_are_one_task() -> None:
    made = by_rules(
        """
        model net(x: f32[3, 4]) -> y: f32[3, 4], z: f32[3, 4]
        weights "none" sha256 "0" (w: f32[4, 4], u: f32[4, 4], v: f32[4, 4]) {
            let a = dense(x, w)
            let b = scaled(a, by=0.5)
            let c = dense(b, u)
            y = scaled(c, by=0.5)
            let d = dense(b, v)
            z = scaled(d, by=0.25)
        }
    """.replace('"0"', f'"{"0" * 64}"')
    )
    assert names(made) == ["dense_scaled", "dense_scaled", "dense_scaled_2"]
    program = made.plan.programs["dense_scaled"]
    assert [p.constant for p in program.params] == [False, True, False]


def test_a_value_of_another_extent_stays_apart() -> None:
    made = by_rules("""
        model net(x: f32[4, 4], w: f32[4, 1]) -> y: f32[4, 4] {
            let h = dense(x, w)
            y = mul(x, h)
        }
    """)
    assert names(made) == ["dense", "mul"]


def test_views_stay_at_the_edge_or_split_dimensions() -> None:
    text = """
        model net(x: f32[3, 4], w: f32[4, 12]) -> y: f32[36] {
            let h = dense(x, w)
            let v = reshape(h, [36])
            y = flat(v)
        }
    """
    assert names(by_rules(text)) == ["dense", "flat"]
    schedule = "schedule by_hand for net { join_nodes(h, v, y) }"
    with pytest.raises(TschedError, match=r"E0667: the view `v` would be inside, which makes \[36\] of \[3, 12\]"):
        by_rules(text + schedule, "")
    split = by_rules("""
        model net(x: f32[1, 4], w: f32[4, 12]) -> y: f32[4, 3] {
            let h = dense(x, w)
            let v = reshape(h, [3, 4])
            y = turn(v)
        }
    """)
    assert names(split) == ["dense_turn"] and len(split.plan.steps) == 1


@pytest.mark.parametrize(
    ("source", "shape", "places"),
    [
        ([12], [3, 4], ["4 * a + b"]),
        ([3, 4], [12], None),
        ([1, 12], [3, 1, 4], ["0", "4 * a + c"]),
        ([6, 4], [4, 6], None),
        ([1], [1, 1], ["0"]),
        ([0], [0, 2], None),
        ([1], [], None),
        ([2, 3], [2, 1, 3, 1], ["a", "c"]),
    ],
)
def test_a_view_is_said_without_quotients(source: list[int], shape: list[int], places: list[str] | None) -> None:
    assert split_places(source, shape, "abcd"[: len(shape)]) == places


def test_draws_of_rules_are_decided_by_name() -> None:
    model = """
        model net(x: f32[3, 4], w: f32[4, 4], u: f32[4, 4]) -> y: f32[3, 4] {
            let h = dense(x, w)
            let s = soft(h)
            y = dense(s, u)
        }
    """
    usual = by_rules(model)
    assert usual.trace is not None
    chained = grouped(loaded(model), "net", Target(), {"chained_products": True})
    assert (len(names(usual)), names(chained)) == (3, ["dense_soft"])
    assert chained.trace is not None and chained.trace.decisions == {"chained_products": True}
    space = graph_space(loaded(model), "net", Target())
    assert space is not None
    again = handlers.replay(space, chained.trace).expand(lambda _: None)
    assert (again.text, again.program) == (chained.trace.text, chained.trace.program)
    assert isinstance(again.program, Graph) and [n.name for n in again.program.nodes] == ["y"]
    # The trace is a schedule of the model.
    by_hand = by_rules(f"{model}\n{chained.trace.text}", "use std.graph.{epilogues}")
    assert by_hand.plan == chained.plan
    with pytest.raises(TschedError, match="E0556"):
        grouped(loaded(model), "net", Target(), {"chained": True})
    with pytest.raises(TschedError, match="E0506"):
        grouped(loaded(model), "net", Target(), {"chained_products": 3})


def test_without_a_space_for_graphs_nothing_is_joined() -> None:
    model = "model net(x: f32[3, 4]) -> y: f32[3, 4] {\n let a = relu(x)\n y = relu(a)\n}"
    file = loaded(model, "")
    assert grouped(file, "net", Target()).plan is file.plans["net"]
    both = "module none(c: Node) when false { try { join_nodes(c) } }\nspace a for graph { none }\nspace b for graph { none }"
    with pytest.raises(TschedError, match="E0948: 2 spaces or schedules"):
        by_rules(f"{model}\n{both}", "")


def test_rules_of_a_user_change_the_groups() -> None:
    example = Path(__file__).parents[2] / "examples" / "own_groups.tsched"
    file = load_source(Source.read(example, example.name))
    plain = grouped(file, "block", Target(), {"squeeze": False, "squeeze_1": False, "gated_1": False})
    squeezed = grouped(file, "block", Target(), {"gated_1": False})
    both = grouped(file, "block", Target())
    assert [len(names(made)) for made in (plain, squeezed, both)] == [7, 5, 4]
    assert "mean_dense_relu_gate" in names(squeezed) and "scaled_pointwise" in names(both)
    wanted = run(file.plans["block"], 1)["y"]
    for made in (squeezed, both):
        np.testing.assert_allclose(run(made.plan, 1)["y"], wanted, rtol=1e-9, atol=1e-9)


def test_random_models_have_what_is_hard_to_join() -> None:
    joined, views, several = 0, 0, 0
    for seed in range(1, 40, 2):
        rng = random.Random(seed)
        file = loaded(random_model(rng, rng.randrange(2, 14)), ANY)
        made = grouped(file, "net", Target(), decide=prior(np.random.default_rng(seed)))
        joined += len(made.computes)
        several += sum(len(c.outputs) > 1 for c in made.computes.values())
        views += sum("view(" in s.span.text for c in made.computes.values() for s in c.stages)
    assert joined > 15 and several > 3 and views > 1, (joined, several, views)


def test_names_of_a_model_may_be_words_of_rules_and_views() -> None:
    text = """
        compute view(X: f32[M, N]) -> Y: f32[M, N] { Y[i, j] = X[i, j] + 1.0 }
        model net(x: f32[1, 4], w: f32[4, 12]) -> y: f32[4, 3] {
            let root = dense(x, w)
            let target = reshape(root, [3, 4])
            let join_nodes = view(target)
            y = turn(join_nodes)
        }
    """
    made = by_rules(text)
    assert names(made) == ["dense_view_turn"]
    np.testing.assert_allclose(run(made.plan, 0)["y"], run(loaded(text).plans["net"], 0)["y"])


def test_a_node_has_a_largest_size() -> None:
    lines = "".join(f"let v{n + 1} = soft(v{n})\n" for n in range(70))
    text = f"model net(v0: f32[3, 4]) -> y: f32[3, 4] {{\n{lines}y = relu(v70)\n}}"
    with pytest.raises(TschedError, match="E0667: the node would have 281 stages; 256 are allowed"):
        by_rules(f"{text}\nschedule by_hand for net {{ join_nodes(root.nodes) }}", "")


@pytest.mark.parametrize(
    "fact",
    [
        'c.calls == ["soft"] and p.calls == ["relu"]',
        'len(p.consumers) == 1 and p.consumers[0] == c and p.producers[0].calls == ["dense"]',
        "c.post_dominates(p) and not p.post_dominates(c)",
        "c.same_extent(p) and not c.same_extent(p.producers[0].producers[0])",
        "p.producers[0].producers[0].is_view and not p.is_view",
        "p.is_injective and not c.is_injective and not p.producers[0].is_injective",
        "p.producers[0].has_reuse and not c.has_reuse",
        "c.is_reduction and not p.is_reduction",
        "not c.is_scan",
        "c.is_output and not p.is_output",
        "c.elements == 6 and p.producers[0].producers[0].elements == 12",
        "p.producers[0].flops == 48 and p.producers[0].producers[0].flops == 0",
        "p.bytes_read == 24 and p.producers[0].bytes_read == 48 + 32",
        "p.bytes_written == 24",
        "c.shape == [3, 2] and len(p.between(c)) == 0",
    ],
)
def test_what_rules_ask_of_nodes(fact: str) -> None:
    model = """model net(x: f32[12], w: f32[4, 2]) -> p: f32[3, 2] {
        let v = reshape(x, [3, 4])
        let h = dense(v, w)
        let a = relu(h)
        p = soft(a)
    }"""

    def steps(condition: str) -> int:
        join = f"for p in c.producers {{ if {condition} {{ join_nodes(p, c) }} }}"
        rule = f'module ask(c: Node) when c.calls == ["soft"] {{ {join} }}'
        return len(by_rules(model, f"{rule}\nspace rules for graph {{ ask }}").plan.steps)

    assert (steps(fact), steps(f"not ({fact})")) == (3, 4)
