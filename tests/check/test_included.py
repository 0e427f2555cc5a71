"""Spaces that name spaces: their rules in place, and the errors."""

from __future__ import annotations

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import CheckedFile, load_file
from tensorc_dsl.check.spaces import rule_name
from tensorc_dsl.check.uses import Found
from tensorc_dsl.interp.space import task_space
from tensorc_dsl.ir.target import Target

MODULES = "".join(f"module {name}(b: Block) {{}}\n" for name in ("one", "two", "three"))
COMPUTE = "compute copy(A: f32[M]) -> B: f32[M] { B[i] = A[i] }\n"


def load(text: str, lib: str = "") -> CheckedFile:
    def resolve(path: tuple[str, ...], user: Source) -> Found:
        return Found(path[0], (Source("lib.tsched", lib),))

    return load_file(Source("main.tsched", text), resolve)


def rules(checked: CheckedFile, name: str) -> list[str]:
    return [rule_name(r) for r in checked.spaces[name].rules]


def test_a_space_has_the_rules_of_those_it_names_in_their_places() -> None:
    text = (
        MODULES
        + "space all for llvm { first; three }\nspace first for llvm { inner; two }\nspace inner for llvm { one }"
    )
    checked = load(text)
    assert checked.diagnostics == ()
    assert rules(checked, "all") == ["one", "two", "three"]
    assert rules(checked, "first") == ["one", "two"]


def test_rules_of_another_file_keep_their_names() -> None:
    own = "use lib.{some}\nmodule one(b: Block) { parallel(b.loops[0]) }\nspace mine for llvm { one; some }\n"
    checked = load(own, MODULES + "space some for llvm { whole }\nspace whole for llvm { one; two }")
    assert checked.diagnostics == ()
    assert rules(checked, "mine") == ["one", "lib.one", "lib.two"]
    assert all(name in checked.modules for name in rules(checked, "mine"))


def test_a_module_goes_before_a_space_of_its_name() -> None:
    checked = load(MODULES + "space one for llvm { two }\nspace mine for llvm { one }")
    assert rules(checked, "mine") == ["one"]


def test_of_several_spaces_a_task_takes_the_one_that_holds_the_others() -> None:
    own = "use lib\nmodule four(b: Block) {}\nspace mine for llvm { four; some }\ntask t = copy(M=4)\n"
    checked = load(own + COMPUTE, MODULES + "space some for llvm { part; two }\nspace part for llvm { one }")
    assert checked.errors == ()
    assert list(checked.spaces) == ["mine", "some", "part"]
    assert task_space(checked, "t", Target()).definition.name == "mine"


@pytest.mark.parametrize(
    ("spaces", "code", "says"),
    [
        ("space a for llvm { b }\nspace b for llvm { a }", "E0228", "space `a` contains itself: a > b > a"),
        ("space a for llvm { one; a }", "E0228", "space `a` contains itself: a > a"),
        ("space a for llvm { b; c }\nspace b for llvm { one }\nspace c for llvm { b }", "E0238", "rules of space `c`"),
        ("space a for llvm { b }\nspace b for cuda { one }", "E0227", "space `b` is for `cuda`, and `a` for `llvm`"),
        ("space a for llvm { b() }\nspace b for llvm { one }", "E0224", "space `b` takes no arguments"),
        ("space a for llvm { bb }\nspace bbb for llvm { one }", "E0223", "there is no module or space `bb`"),
    ],
)
def test_what_is_refused(spaces: str, code: str, says: str) -> None:
    checked = load(MODULES + spaces)
    assert [d.code for d in checked.diagnostics] == [code]
    assert says in checked.diagnostics[0].message


def test_a_space_for_a_described_machine_goes_into_one_for_its_kind() -> None:
    target = "target small = llvm(vector_bits=128)\n"
    lib = MODULES + target + "space narrow for small { one }"
    assert load("use lib.{narrow}\nspace mine for llvm { narrow }", lib).diagnostics == ()
    assert [d.code for d in load("use lib.{narrow}\nspace mine for cuda { narrow }", lib).diagnostics] == ["E0227"]


def test_a_chain_of_spaces_is_as_long_as_its_rules() -> None:
    """Each rule stands in a space once, so that no file makes a space of more rules than it has lines."""
    text = MODULES + "".join(f"space s{n} for llvm {{ s{n + 1}; s{n + 1} }}\n" for n in range(60))
    checked = load(text + "space s60 for llvm { one }")
    assert {d.code for d in checked.diagnostics} == {"E0238"}
    assert rules(checked, "s0") == ["one"]
