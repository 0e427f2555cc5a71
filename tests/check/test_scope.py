"""Files that use other files."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc_dsl.schedule.primitives
from tensorc_dsl.base.diagnostic import Severity, TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.items import task_bindings
from tensorc_dsl.check.scope import CheckedFile, load_file, load_source
from tensorc_dsl.check.uses import Found, standard
from tensorc_dsl.elaborate.compute import elaborate
from tensorc_dsl.interp.space import Space
from tensorc_dsl.ir.program import For, LoopKind, walk
from tensorc_dsl.ir.target import Target

assert tensorc_dsl.schedule.primitives

COMPUTE = "compute copy(A: f32[M]) -> B: f32[M] { B[i] = A[i] }\n"


def load(text: str, **files: str) -> CheckedFile:
    """A file that can use the others by name; `folder__name` is `name.tsched` in a folder."""

    def resolve(path: tuple[str, ...], user: Source) -> Found:
        name = "__".join(path)
        found = [n for n in sorted(files) if n == name or n.rpartition("__")[0] == name]
        return Found(".".join(path), tuple(Source(f"{n}.tsched", files[n]) for n in found))

    return load_file(Source("main.tsched", text), resolve)


def codes(checked: CheckedFile) -> list[str]:
    return [d.code for d in checked.diagnostics]


def test_items_come_by_their_names() -> None:
    checked = load(
        "use lib\nuse other.{two}\ntask t = copy(M=4) with s\n",
        lib=COMPUTE
        + "module one(b: Block) {}\nspace s for llvm { one }\nschedule by_hand for copy {}\ntask hidden = copy(M=1)",
        other="module two(b: Block) {}\nmodule three(b: Block) {}",
    )
    assert checked.diagnostics == ()
    assert list(checked.computes) == ["copy"]
    assert list(checked.spaces) == ["s"]
    assert list(checked.schedules) == ["by_hand"]
    assert list(checked.tasks) == ["t"]
    assert [n for n in checked.modules if "." not in n] == ["one", "two"]
    assert checked.source.name == "main.tsched"


def test_a_used_module_calls_its_own_helpers_whatever_the_user_has() -> None:
    checked = load(
        COMPUTE + "use lib.{outer}\nmodule helper(b: Block) { parallel(b.loops[0]) }\nspace s for llvm { outer }\n"
        "task t = copy(M=4) with s\n",
        lib="module outer(b: Block) { helper(b) }\nmodule helper(b: Block) { unroll(b.loops[0]) }",
    )
    assert checked.errors == ()
    program = elaborate(checked.computes["copy"], task_bindings(checked.tasks["t"]))
    space = Space(checked.spaces["s"], "copy", program, Target(), checked.modules)
    scheduled = space.sample(np.random.default_rng(0)).program
    assert [s.kind for _, s in walk(scheduled.body) if isinstance(s, For)] == [LoopKind.UNROLLED]


def test_a_used_space_brings_its_modules() -> None:
    checked = load(
        COMPUTE + "use lib.{s}\nmodule rule(b: Block) { parallel(b.loops[0]) }\ntask t = copy(M=4) with s\n",
        lib="module rule(b: Block) { unroll(b.loops[0]) }\nspace s for llvm { rule }",
    )
    assert checked.errors == ()
    program = elaborate(checked.computes["copy"], {"M": 4})
    space = Space(checked.spaces["s"], "copy", program, Target(), checked.modules)
    scheduled = space.sample(np.random.default_rng(0)).program
    assert [s.kind for _, s in walk(scheduled.body) if isinstance(s, For)] == [LoopKind.UNROLLED]


def test_a_folder_is_all_of_its_files() -> None:
    checked = load("use lib.{a, b}", lib__x="module a(b: Block) {}", lib__y="module b(b: Block) {}")
    assert checked.diagnostics == ()
    assert {"a", "b"} <= set(checked.modules)


def test_a_folder_that_has_a_name_twice_lists_both() -> None:
    twice = {"lib__x": "module a(b: Block) {}", "lib__y": "\nmodule a(b: Block) {}\nmodule d(b: Block) {}"}
    for text in ("use lib", "use lib.{a}"):
        checked = load(text, **twice)
        assert codes(checked) == ["E0234"]
        notes = [n.text for n in checked.diagnostics[0].notes[:2]]
        assert notes == ["one: lib__x.tsched:1:8", "the other: lib__y.tsched:2:8"]
    assert codes(load("use lib.{d}", **twice)) == []


def test_helpers_of_one_name_in_two_files_of_a_folder_stay_apart() -> None:
    checked = load(
        COMPUTE + "use lib.{one, two}\nspace s for llvm { two }\ntask t = copy(M=4) with s\n",
        lib__x="module one(b: Block) { helper(b) }\nmodule helper(b: Block) { unroll(b.loops[0]) }",
        lib__y="module two(b: Block) { helper(b) }\nmodule helper(b: Block) { parallel(b.loops[0]) }",
    )
    assert checked.errors == ()
    program = elaborate(checked.computes["copy"], {"M": 4})
    space = Space(checked.spaces["s"], "copy", program, Target(), checked.modules)
    scheduled = space.sample(np.random.default_rng(0)).program
    assert [s.kind for _, s in walk(scheduled.body) if isinstance(s, For)] == [LoopKind.PARALLEL]


def test_one_file_by_two_paths_is_one_file() -> None:
    checked = load("use lib\nuse lib.x", lib__x="module a(b: Block) {}")
    assert codes(checked) == []


def test_the_same_name_from_two_places_lists_both() -> None:
    for text in ("use one\nuse two", "use one\nmodule a(b: Block) {}", "use one.{a}\nuse two.{a}"):
        checked = load(text, one="module a(b: Block) {}", two="\nmodule a(b: Block) {}")
        assert codes(checked) == ["E0234"]
        notes = [n.text for n in checked.diagnostics[0].notes]
        assert any(": one.tsched:1:8" in n for n in notes)
        assert any(n.startswith(("one: ", "the other: ")) and "one.tsched" not in n for n in notes)


def test_files_cannot_use_each_other() -> None:
    checked = load("use a", a="use b", b="use a")
    assert codes(checked) == ["E0233"]
    assert "a.tsched > b.tsched > a.tsched" in checked.diagnostics[0].message
    assert codes(load("use main", main="use main")) == ["E0233"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("use nowhere", "E0232"),
        ("use lib.{nothing}", "E0235"),
        ("use lib.{t}", "E0236"),
        ("use lib.{by_hand}", "E0227"),
        ("use lib.{copy, by_hand}", ""),
    ],
)
def test_what_can_be_used(text: str, code: str) -> None:
    lib = COMPUTE + "task t = copy(M=4)\nschedule by_hand for copy {}"
    assert codes(load(text, lib=lib)) == ([code] if code else [])


def test_errors_in_used_files_are_told_once_and_warnings_not() -> None:
    lib = "module a(b: Block) { foo(b); let x = 1 }\nmodule c(b: Block) { d( }"
    broken = load("use lib\nuse other", lib="module a(b: Block) { foo(b); let x = 1 }", other="use lib")
    assert codes(broken) == ["E0223"]
    assert [d.span.source.name for d in broken.diagnostics if d.span] == ["lib.tsched"]
    assert codes(load("use lib", lib=lib)) == ["E0103"]


def test_warnings_do_not_stop_anyone() -> None:
    checked = load_source(Source("x", "module m(b: Block) { let x = 1; let _y = 2; let [i, j] = b.loops }"))
    assert [(d.code, d.severity) for d in checked.diagnostics] == [("W0201", Severity.WARNING)]
    with pytest.raises(TschedError) as caught:
        load_source(Source("x", "module m(b: Block) { let x = 1; foo() }"))
    assert [d.code for d in caught.value.diagnostics] == ["E0223"]


def test_a_text_that_does_not_parse_has_the_items_that_do() -> None:
    checked = load("module m(b: Block) { n(b) }\nmodule n(\nspace s for llvm { m }")
    assert codes(checked) == ["E0101"]
    assert [*checked.modules] == ["m"] and [*checked.spaces] == ["s"]


def test_what_may_be_in_the_broken_part_of_a_used_file_is_not_missed() -> None:
    lib = "module good(b: Block) {}\nmodule bad(b: Block) {"
    space = "space s for llvm { good; bad }"
    assert codes(load(f"use lib.{{good, bad}}\n{space}", lib=lib)) == ["E0101"]
    assert codes(load(f"use lib\n{space}", lib=lib)) == ["E0101"]
    assert codes(load(f"use lib.{{good}}\n{space}", lib=lib)) == ["E0223", "E0101"]


def test_names_bound_in_every_branch_are_bound_after() -> None:
    both = "either { let l = b.loops[0] } or { let l = b.loops[1] }\nunroll(l)"
    one = "if b.has_reuse { let l = b.loops[0] }\nunroll(l)"
    assert codes(load(f"module m(b: Block) {{ {both} }}")) == []
    assert codes(load(f"module m(b: Block) {{ {one} }}")) == ["E0220"]


def test_the_standard_library_is_found() -> None:
    """`tests/stdlib/test_digests.py` checks its files."""
    user = Source("x", "")
    for folder in ("cpu", "ops"):
        assert standard(("std", folder), user).sources
    with pytest.raises(TschedError, match=r"`std\.nothing` is not found"):
        standard(("std", "nothing"), user)
    assert standard(("other",), user).sources == ()
    checked = load_source(Source("x", "use std.cpu.{multi_level_tiling}\nuse std.ops\ntask t = matmul(M=2, N=3, K=5)"))
    assert "matmul" in checked.computes


def test_a_name_of_another_layer_is_told_apart() -> None:
    """A constant is no value of a compute, and a program no compute: what each is, and what to write."""
    text = """const pi = 3.14
compute f(A: f32[N]) -> Y: f32[N] { Y[i] = A[i] * pi }
program p(A: f32[4], B: f32[4]) { for i in 4 { block B { spatial v in 4 = i; B[v] = A[v] } } }
schedule s for p { parallel(i) }
task t = p()
"""
    found = load_file(Source("f.tsched", text)).diagnostics
    constant = "`pi` is a constant of schedules; a compute has attributes: `; pi: float = 3.14`"
    program = "`p` is a program, with its loops as they are; schedules and tasks are of a `compute`"
    assert [(d.code, [n.text for n in d.notes]) for d in found] == [
        ("E0405", [constant]), ("E0227", [program]), ("E0227", [program]),
    ]  # fmt: skip
    repaired = text.splitlines()[1].replace("[N]) ->", "[N]; pi: float = 3.14) ->")
    assert load_file(Source("f.tsched", repaired)).diagnostics == ()
