"""Modules as values: passed on with options, compared with what they are applied to, and applied."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import CheckedFile, load_file
from tensorc_dsl.check.uses import Found
from tensorc_dsl.interp.space import task_space
from tensorc_dsl.ir.target import Target
from tensorc_dsl.reference.interpret import interpret
from tensorc_dsl.schedule.trace.trace import Trace

COMPUTE = """\
compute maps(X: f32[M, N]) -> Y: f32[M, N] {
    let T[i, j] = X[i, j] * 2.0
    Y[i, j] = T[i, j] + 1.0
}
"""

MODULES = """\
module near(b: Block, width: int = 8) {
    let w ~ sample_categorical([width, 2 * width])
    let [_, lane] = split(b.loops[-1], [_, w], partial=true)
    vectorize(lane)
}
module at(b: Block, l: Loop) { compute_at(b, l) }
module rows(l: Loop) { parallel(l) }
module below(b: Block) { unroll(b.loops[0]) }
module whole(p: Program) { annotate(p, "unroll.max_step", 16) }
module with_end(b: Block, epilogue: Module = near) { unroll(b.loops[0]); epilogue(b) }
module beside(b: Block, put: Module(Block, Loop), l: Loop) { put(b, l) }
module each(f: Module(T), xs: list(T)) { for x in xs { f(x) } }
module in_turn(fs: list(Module), b: Block) { for f in fs { f(b) } }
module once(f: Module(T), x: T) { f(x) }
"""


def load(text: str, **used: str) -> CheckedFile:
    def resolve(path: tuple[str, ...], user: Source) -> Found:
        return Found(path[0], (Source(f"{path[0]}.tsched", used[path[0]]),))

    return load_file(Source("main.tsched", text), resolve)


def schedule(body: str, modules: str = MODULES) -> str:
    return f"{COMPUTE}{modules}schedule s for maps {{\n{body}\n}}\ntask t = maps(M=7, N=40) with s\n"


def trace(checked: CheckedFile, task: str = "t", seed: int = 0) -> Trace:
    assert checked.errors == (), checked.errors
    return task_space(checked, task, Target()).sample(np.random.default_rng(seed))


def computes_the_same(found: Trace, checked: CheckedFile, task: str = "t") -> bool:
    x = np.random.default_rng(1).random((7, 40), dtype=np.float32)
    plain, scheduled = (interpret(p, {"X": x})["Y"] for p in (checked.elaborated[task], found.program))
    return np.array_equal(plain, scheduled)


@pytest.mark.parametrize(
    ("passed", "written"),
    [
        ("with_end(Y, near)", "unroll(i_1)\n    near(Y)"),
        ("with_end(Y)", "unroll(i_1)\n    near(Y)"),
        ("with_end(Y, near(width=4))", "unroll(i_1)\n    near(Y, width=4)"),
        ("with_end(Y, epilogue=near(width=4))", "unroll(i_1)\n    near(Y, width=4)"),
        ("let e = near(width=4)\n    e(Y)", "near(Y, 4)"),
        ("let e = near\n    e(Y, width=4)", "near(Y, 4)"),
        ("let e = near(width=2) if target.vector_bits > 0 else with_end\n    e(Y)", "near(Y, 2)"),
        ("let [a, b] = [near, near(width=4)]\n    b(Y)\n    a(T)", "near(Y, 4)\n    near(T)"),
        ("for f in [below, near(width=4)] { f(Y) }", "below(Y)\n    near(Y, 4)"),
        ("in_turn([below, near(width=4)], Y)", "below(Y)\n    near(Y, 4)"),
        ("beside(T, at, i_1)", "compute_at(T, i_1)"),
        (
            "let size ~ sample_categorical([2, 4])\n    once(with_end(epilogue=near(width=size)), Y)",
            "let size ~ sample_categorical([2, 4])\n    with_end(Y, near(width=size))",
        ),
        ("each(near, [T, Y])", "near(T)\n    near(Y)"),
        ("each(rows, [i_1])", "parallel(i_1)"),
        ("each(at(b=T), [i_1])", "compute_at(T, i_1)"),
        ("once(whole, root)", "whole(root)"),
        ("with_end(T, once(f=near))", "unroll(T.loops[0])\n    near(T)"),
        ("once(once(f=near), Y)", "near(Y)"),
        (
            "once(each(f=with_end(epilogue=near(width=4))), [T, Y])",
            "with_end(T, near(width=4))\n    with_end(Y, near(width=4))",
        ),
    ],
)
def test_a_passed_module_does_what_it_does_where_it_is_called(passed: str, written: str) -> None:
    head = "    let [i_1, j_1] = Y.loops\n    "
    first, second = load(schedule(head + passed)), load(schedule(head + written))
    for seed in range(3):
        found = trace(first, seed=seed)
        assert found.lines == trace(second, seed=seed).lines
        assert computes_the_same(found, first)


def test_a_draw_belongs_to_the_module_that_draws_under_those_that_applied_it() -> None:
    checked = load(schedule("    once(with_end(epilogue=near(width=4)), Y)"))
    found = trace(checked)
    assert [(d.name, d.title) for d in found.draws] == [("w", "near.w of Y")]
    tried = task_space(checked, "t", Target()).explain(found)
    assert [(a.owner, a.subject, a.depth, len(a.draws)) for a in tried[1:]] == [
        ("once", "Y", 0, 0), ("with_end", "Y", 1, 0), ("near", "Y", 2, 1),
    ]  # fmt: skip


def test_a_trace_has_no_modules_and_is_replayed() -> None:
    found = trace(load(schedule("    with_end(Y, near(width=4))\n    once(near, T)")))
    assert not any(name in found.text for name in ("with_end", "once", "near("))
    frozen = load(f"{COMPUTE}{found.text}\ntask t = maps(M=7, N=40) with s\n")
    assert trace(frozen).lines == found.lines


def test_a_space_gives_its_rules_modules() -> None:
    rules = "space rules for llvm { with_end(epilogue=near(width=4)) }\ntask t = maps(M=7, N=40) with rules\n"
    text = COMPUTE + MODULES + rules
    checked = load(text)
    assert checked.diagnostics == ()
    assert {d.title for d in trace(checked).draws} == {"near.w of Y", "near.w of T"}


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ("with_end(Y, 4)", "E0240", "`with_end` takes a module of a block for `epilogue`; this is an int"),
        ("with_end(Y, Y)", "E0240", "this is a block"),
        ("with_end(Y, at)", "E0248", "which applies it to a block: it needs `l` besides"),
        ("with_end(Y, rows)", "E0248", "its `l` is a loop, not a block"),
        ("with_end(Y, near(b=Y))", "E0240", "this is nothing"),
        ("with_end(Y, once(f=rows))", "E0248", "its `x` is a loop, not a block"),
        ("beside(T, near, Y.loops[0])", "E0248", "its `width` is an int, not a loop"),
        ("beside(T, rows, Y.loops[0])", "E0248", "applies it to a block and a loop: its `l` is a loop, not a block"),
        ("each(near, Y.loops)", "E0248", "its `b` is a block, not a loop"),
        ("once(rows, Y)", "E0248", "its `l` is a loop, not a block"),
        ("once(f=rows, x=Y)", "E0248", "its `l` is a loop, not a block"),
        (
            "in_turn([at], Y)",
            "E0240",
            "takes a list of modules of a block for `fs`; this is a list of modules of a block and a loop",
        ),
        ("with_end(Y, nearr)", "E0220", "there is no `nearr` here"),
        ("with_end(Y, vectorize)", "E0220", "there is no `vectorize` here"),
        ("with_end(Y, near(widht=4))", "E0224", "`near` has no parameter `widht`"),
        ("with_end(Y, near(width=Y))", "E0240", "this is a block"),
        ("with_end(Y, near(Y))", "E0240", "this is nothing"),
        ("near", "E0249", "the module `near` is not applied"),
        ("let e = near(width=4)\n    e", "E0249", "the module `e` is not applied"),
        ("near(width=4)", "E0224", "`near` needs `b`"),
        ("let e = near(width=4)\n    e(Y, 4)", "E0224", "`e` takes 1 argument; given: 2"),
        ("let e = near(width=4)\n    e(Y, width=4)", "E0224", "`e` has no parameter `width`"),
        ("let e = Y.loops\n    e(Y)", "E0223", "`e` is a list of loops, and cannot be called"),
        ("let near = with_end\n    near(Y)", "E0222", "`near` is a module already"),
        ("let split = near", "E0222", "`split` is a primitive already"),
        ("let e = near + 1", "E0241", "`+` does not take a module of a block and an int"),
    ],
)
def test_what_does_not_fit_is_found_before_anything_is_expanded(body: str, code: str, says: str) -> None:
    found = load(schedule("    " + body)).errors
    assert [d.code for d in found] == [code], found
    assert says in found[0].message
    assert found[0].span is not None and found[0].notes


@pytest.mark.parametrize(
    ("name", "repair"),
    [
        ("maps", "`maps` is a compute: the items that are passed on, and applied, are modules"),
        ("s", "`s` is a schedule: the items that are passed on, and applied, are modules"),
        ("vectorize", "a step is passed on in a module that applies it"),
        ("nera", "did you mean `near`?"),
        ("near(b=Y)", "pass it as `near`, with options by name if it has any"),
    ],
)
def test_what_is_no_module_has_a_repair(name: str, repair: str) -> None:
    (in_schedule,) = load(schedule(f"    with_end(Y, {name})")).errors
    assert any(repair in note.words for note in in_schedule.notes)
    rule = f"module rule(Y: Block) {{ with_end(Y, {name}) }}\n"
    (in_module,) = load(schedule("    rule(Y)", MODULES + rule)).errors
    assert any(repair in note.words for note in in_module.notes)


@pytest.mark.parametrize(
    ("module", "code", "says"),
    [
        ("module m(b: Block, f: Module) { f(b.loops[0]) }", "E0240", "`f` takes a block; this is a loop"),
        ("module m(b: Block, f: Module) { f(b, 4) }", "E0224", "`f` takes 1 argument; given: 2"),
        ("module m(b: Block, f: Module) { f() }", "E0224", "`f` needs a block"),
        ("module m(b: Block, f: Module) { f(b); f }", "E0249", "the module `f` is not applied"),
        ("module m(b: Block, f: Module) { with_end(b.loops[0], f) }", "E0240", "this is a loop"),
        ("module m(b: Block, f: Module(Loop)) { with_end(b, f) }", "E0248", "its argument 1 is a loop, not a block"),
        ("module m(b: Block, f: Module(Block, Loop)) { with_end(b, f) }", "E0248", "it needs a loop besides"),
        ("module m(b: Block, f: Module()) { with_end(b, f); f() }", "E0248", "it takes no arguments, not 1"),
        ("module m(b: Block, f: Module = at) { f(b) }", "E0248", "it needs `l` besides"),
        (
            "module m(b: Block, f: Module = 4) { f(b) }",
            "E0244",
            "`f` is a module of a block, but its default is an int",
        ),
        ("module m(b: Block, f: Modul) { f(b) }", "E0237", "there is no type `Modul`"),
        ("module m(b: Block, f: Module(Blok)) { f(b) }", "E0237", "there is no type `Blok`"),
        ("module m(b: Block(Loop)) { parallel(b.loops[0]) }", "E0237", "`Block` has no such types in parentheses"),
        ("module m(b: list(Block, Loop)) { for x in b { near(x) } }", "E0237", "`list` has no such types"),
        ("module m(_b: B) {}", "E0237", "there is no type `B`"),
        (
            "module m(f: Module(T), x: T, b: Block) { f(b); f(x) }",
            "E0240",
            "`f` takes `T`; this is a block",
        ),
        ("module m(f: Module(T), x: T) { f(x); near(x) }", "E0240", "`near` takes a block for `b`; this is `T`"),
        ("module m(f: Module(T), x: T) { f(x); parallel(x.loops[0]) }", "E0226", "`T` has no `loops`"),
        ("module m(b: Block, near: Module) { near(b) }", "E0222", "`near` is a module already"),
        ("module m(b: Block) { near(b); let near = 4; with_end(b, near) }", "E0240", "this is an int"),
        (
            "module m(b: Block) { with_end(b, near); let near = 4; split(b.loops[0], [_, near]) }",
            "E0220",
            "no `near` here",
        ),
    ],
)
def test_the_signature_of_a_parameter_holds_in_the_body_and_in_the_default(module: str, code: str, says: str) -> None:
    found = load(COMPUTE + MODULES + module).errors
    assert [d.code for d in found] == [code], found
    assert says in found[0].message
    assert found[0].notes


@pytest.mark.parametrize(
    ("modules", "call", "code", "says"),
    [
        ("module m(b, f) { f(b) }", "m(Y, Y)", "E0538", "`f` is a block, and cannot be called"),
        ("module m(b, f) { f(b) }", "m(Y, at)", "E0541", "`at` needs `l`"),
        (
            "module m(b, f) { with_end(b, f) }",
            "m(Y, at)",
            "E0540",
            "`at` cannot be the `epilogue` of `with_end`: it needs `l` besides",
        ),
        ("module m(b, f) { with_end(b, f) }", "m(Y, 4)", "E0543", "`with_end` takes a module"),
        ("module m(b, f) { let e = f(size=4); e(b) }", "m(Y, near)", "E0540", "has no parameter `size` left to give"),
        ("module m(b: Block, f) { f(b, m) }", "m(Y, m)", "E0539", "module `m` reaches itself: m > m"),
        ("module m(f, b) { f(f, b) }", "m(m, Y)", "E0539", "module `m` reaches itself: m > m"),
        (
            "module w(g, f, b) { g(f, b) }\nmodule m(f, b) { f(w(g=f), b) }",
            "m(m, Y)",
            "E0529",
            "more than 8 levels deep",
        ),
    ],
)
def test_what_no_kind_tells_is_found_when_it_is_applied(modules: str, call: str, code: str, says: str) -> None:
    checked = load(schedule("    " + call, MODULES + modules + "\n"))
    with pytest.raises(TschedError) as e:
        trace(checked)
    assert [d.code for d in e.value.diagnostics] == [code]
    assert says in e.value.diagnostics[0].message


def test_modules_that_hold_each_other_are_bounded_however_they_are_made() -> None:
    def chain(options: str, count: int) -> str:
        return "\n".join(f"    let f{n + 1} = two({options.format(f=f'f{n}')})" for n in range(count))

    two = "module two(g: Module, h: Module, b: Block) { g(b); h(b) }\n"
    for options in ("g={f}, h={f}", "g={f}, h=below"):
        checked = load(schedule("    let f0 = below\n" + chain(options, 1_000) + "\n    f999(Y)", MODULES + two))
        with pytest.raises(TschedError) as e:
            trace(checked)
        assert [d.code for d in e.value.diagnostics] == ["E0529"]


@pytest.mark.parametrize("taken", ["list(T)", "Module(T)"])
def test_kinds_of_kinds_do_not_grow_without_an_end(taken: str) -> None:
    module = f'module grow(f: Module(T), x: {taken}) {{ annotate(root, "unroll.max_step", 1); once(f=f, x=x) }}\n'
    lines = "\n".join(f"    let f{n + 1} = grow(f=f{n})" for n in range(400))
    found = load(schedule(f"    let f0 = below\n{lines}\n    f400(4)", MODULES + module)).errors
    kinds = {d.code for d in found}
    assert kinds <= {"E0240", "E0248"}
    assert all(len(d.message) < 1000 for d in found)


LIBRARY = """\
use parts.{strip}
module near(b: Block) { vectorize(b.loops[-1]) }
module strip_all(b: Block, epilogue: Module = near) { strip(b, near); epilogue(b) }
module local(b: Block) { let near = 4; split(b.loops[0], [_, near], partial=true) }
compute maps(X: f32[M, N]) -> Y: f32[M, N] {
    let near[i, j] = X[i, j] * 2.0
    Y[i, j] = near[i, j] + 1.0
}
schedule by_block for maps { apply_it(near) }
module apply_it(b: Block) { parallel(b.loops[0]) }
"""

PARTS = "module strip(b: Block, last: Module) { unroll(b.loops[0]) }\n"


def test_names_of_a_used_file_mean_what_they_mean_there() -> None:
    text = """\
use lib.{strip_all, local, maps, by_block}
module near(b: Block) { parallel(b.loops[0]) }
module strip(b: Block) { parallel(b.loops[0]) }
schedule s for maps { strip_all(Y); local(Y.producers[0]) }
task t = maps(M=7, N=40) with s
task u = maps(M=7, N=40) with by_block
"""
    checked = load(text, lib=LIBRARY, parts=PARTS)
    found = trace(checked)
    assert [line.partition("(")[0].rpartition(" ")[2] for line in found.lines if "loops" not in line] == [
        "unroll", "vectorize", "split",
    ]  # fmt: skip
    assert "parallel(" in trace(checked, "u").text


@pytest.mark.parametrize(("values", "kind"), [("[below, with_end]", "a module"), ("[target, target]", "the target")])
def test_what_has_no_text_is_no_value_of_a_draw(values: str, kind: str) -> None:
    checked = load(
        schedule(f'    let order ~ sample_permutation({values})\n    for x in order {{ annotate(root, "n", 1) }}')
    )
    with pytest.raises(TschedError) as e:
        trace(checked)
    assert [d.code for d in e.value.diagnostics] == ["E0502"]
    assert kind in e.value.diagnostics[0].message


def test_a_choice_of_modules_is_a_choice_of_structure() -> None:
    body = "    either how: vectors { with_end(Y, near) } or at_once { with_end(Y, near(width=40)) }"
    assert {trace(load(schedule(body)), seed=n).draws[0].decision for n in range(8)} == {"vectors", "at_once"}
