"""Each row of CONTRIBUTING, which lists the files that one addition touches, is played on a copy of the repository.

A recipe writes and edits exactly the files of its row. Then the generated parts are made, what is printed is accepted, the
tests around everything that was added pass, and the command line knows it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.started import Commands

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("bench", "campaigns", "docs", "editors", "examples", "grammar", "stdlib", "tensorc_dsl", "tests", "tools")
FILES = ("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "pyproject.toml")
TOY = ROOT / "tests" / "backends" / "toy" / "tensorc_toy"


def unused(first: int) -> str:
    """The last code of a hundred that no error has."""
    codes = (f"E{n:04}" for n in range(first + 99, first - 1, -1))
    return next(c for c in codes if not (ROOT / "docs" / "errors" / f"{c}.md").exists())


REFUSED, FOUND = unused(600), unused(200)
"""The codes of the refusal and of the error that are added."""


@dataclass
class Copy:
    """A copy of the repository, and what was touched in it for the recipe at hand."""

    root: Path
    written: set[str] = field(default_factory=set)
    edited: set[str] = field(default_factory=set)
    commands: Commands | None = None

    @property
    def environment(self) -> dict[str, str]:
        """In which modules are those of the copy."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TSCHED"))}
        return {**kept, "PYTHONPATH": str(self.root)}

    def write(self, path: str, text: str) -> None:
        """A new file."""
        assert not (self.root / path).exists(), path
        (self.root / path).parent.mkdir(exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")
        self.written.add(path)

    def edit(self, path: str, old: str, new: str) -> None:
        """Another text at one place of a file."""
        text = (self.root / path).read_text(encoding="utf-8")
        assert text.count(old) == 1, (path, old)
        (self.root / path).write_text(text.replace(old, new), encoding="utf-8")
        self.edited.add(path)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], check=False, cwd=self.root, text=True, timeout=600,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.environment,
        )  # fmt: skip

    def says(self, *arguments: str, status: int = 0) -> str:
        """What the command line prints."""
        if self.commands is None:
            self.commands = Commands(self.root, self.environment)
        return self.commands.says(arguments, self.root, {}, status)


def page(code: str, title: str, example: str, repair: str) -> str:
    """A page about an error."""
    wrong, right = f"```tsched error={code}\n{example}```", f"```tsched\n{repair}```"
    return f"# {code}: {title}\n\nIt is only here to be there.\n\n{wrong}\n\n## Repair\n\n{right}\n"


# --- the recipes -----------------------------------------------------------------------------------------------------

TOUCH = '''"""`touch`: leave a word at a loop."""

from __future__ import annotations

from dataclasses import replace

from tensorc_dsl.ir.program import Program, replace_stmt
from tensorc_dsl.schedule.nests import NO_LOOP, the_loop
from tensorc_dsl.schedule.step import primitive
from tensorc_dsl.schedule.step import Rewrite
from tensorc_dsl.schedule.step import LoopRef
from tensorc_dsl.schedule.step import refusal


@refusal("CODE", "`{loop}` cannot be touched with nothing", help="give a word", at="word")
def NO_WORD(*focus: str, loop: str) -> None: ...


@primitive(NO_LOOP, NO_WORD)
def touch(program: Program, loop: LoopRef, word: str) -> Rewrite[LoopRef]:
    """The loop carries the word, and runs as before.

    for i in n: s  ->  for i in n @touched(word): s

    Cases: tests/primitives/touch.md
    """
    _, target = the_loop(program, loop)
    if not word:
        raise NO_WORD(program, target.var, loop=target.var)
    notes = (*(n for n in target.annotations if n[0] != "touched"), ("touched", word))
    return Rewrite(replace_stmt(program, target.var, (replace(target, annotations=notes),)), LoopRef(target.var))
'''

COPYING = """\
program copy(A: f32[12], B: f32[12]) {
    for i in 12 {
        block B {
            spatial vi in 12 = i
            B[vi] = A[vi]
        }
    }
}
"""

TWICE = """\
compute twice(A: f32[M]) -> B: f32[M] {
    B[i] = A[i] * 2.0
}

schedule once for twice {
    touch(B.loops[0], "WORD")
}

task small = twice(M=8)
"""


def primitive(copy: Copy) -> None:
    cases = [("a word", 'touch(i, "here")'), ("no word", 'touch(i, "")'), ("no loop", 'fuse(i)\ntouch(i, "here")')]
    shown = "".join(f"\n## {t}\n\n```tsched\n{COPYING}```\n\n```call\n{call}\n```\n" for t, call in cases[:2])
    gone = COPYING.replace("for i in 12", "for i in 4, j in 3").replace("= i", "= i * 3 + j")
    shown += f'\n## no loop\n\n```tsched\n{gone}```\n\n```call\nfuse(i, j)\ntouch(i, "here")\n```\n'
    copy.write("tensorc_dsl/schedule/primitives/touch.py", TOUCH.replace("CODE", REFUSED))
    copy.write("tests/primitives/touch.md", f"# touch\n\nLeave a word at a loop.\n{shown}")
    right = TWICE.replace("WORD", "here")
    copy.write(f"docs/errors/{REFUSED}.md", page(REFUSED, "nothing to touch with", TWICE.replace("WORD", ""), right))


COIN = '''"""`sample_coin`: one of two numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.trace.distribution import Decision, Distribution, Offer, draw

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Coin(Distribution):
    """One of two numbers, equally likely."""

    one: int
    other: int

    def size(self) -> int:
        return 2

    def sample(self, rng: np.random.Generator) -> Decision:
        return self.one if rng.random() < 0.5 else self.other

    def contains(self, decision: Decision) -> bool:
        return type(decision) is int and decision in (self.one, self.other)

    def log_prob(self, decision: Decision) -> float:
        return math.log(0.5) if self.contains(decision) else -math.inf

    def moves(self, decision: Decision) -> list[Decision]:
        return [self.other if decision == self.one else self.one]

    def features(self, decision: Decision) -> tuple[float, ...]:
        return (float(decision == self.one),)

    def describe(self, limit: int = 12) -> str:
        return f"{self.one} or {self.other}"

    def meaning(self) -> tuple[object, ...]:
        return ("coin", self.one, self.other)


@draw(int)
def sample_coin(program: Program, one: int, other: int) -> Offer:
    """One of two numbers, both equally likely: `sample_coin(1, 4)`."""
    return Offer(Coin(one, other))
'''


def draw(copy: Copy) -> None:
    copy.write("tensorc_dsl/schedule/trace/draws/coin.py", COIN)
    test = (
        '"""`sample_coin`."""\n\nfrom tensorc_dsl.schedule.trace.draws.coin import Coin\n\n'
        "EXAMPLES = [Coin(1, 4)]\n\n\ndef test_a_coin_has_two_sides() -> None:\n    assert Coin(1, 4).moves(1) == [4]\n"
    )
    copy.write("tests/trace/draws/test_coin.py", test)


def operator(copy: Copy) -> None:
    text = "/// Three times what there is.\ncompute triple(X: f32[M, N]) -> Y: f32[M, N] {\n    Y[i, j] = X[i, j] * 3.0\n}\n"
    copy.write("stdlib/ops/triple.tsched", text)
    reference = (
        '"""`stdlib/ops/triple.tsched`."""\n\nfrom tests.stdlib.numerics import Operator, each\n\n'
        'OPERATORS = {"triple": Operator(lambda x: 3 * x, each("M N", (5, 7)))}\n'
    )
    copy.write("tests/stdlib/operators/triple.py", reference)


def maths(copy: Copy) -> None:
    copy.edit(
        "tensorc_dsl/ir/maths.py",
        '    "abs": Math',
        '    "rint": MathFunction(1, "the whole number next to x"),\n    "abs": Math',
    )
    floor = '    "floor": _whole(np.floor),\n'
    copy.edit("tensorc_dsl/reference/maths.py", floor, f"{floor}{floor.replace('floor', 'rint')}")
    floor = '    "floor": _instruction("floor"),\n'
    copy.edit("tensorc_dsl/backend/llvm/codegen/maths.py", floor, f"{floor}{floor.replace('floor', 'rint')}")


def strategy(copy: Copy) -> None:
    text = (
        '"""`again`: as `random`."""\n\nfrom __future__ import annotations\n\n'
        "from tensorc_dsl.tuning.search.strategies.random import Random\n"
        "from tensorc_dsl.tuning.search.strategy import Factory\n\n"
        "STRATEGY: Factory = Random\n"
    )
    copy.write("tensorc_dsl/tuning/search/strategies/again.py", text)


RAISING = "tensorc_dsl/check/items.py"


def error(copy: Copy) -> None:
    check = "    found: list[Diagnostic] = []\n    # Kinds of"
    declared = (
        f'@problem("{FOUND}", "nothing runs on the moon", help="take a machine on earth")\ndef MOON() -> None: ...\n'
    )
    more = '    if item.name == "moon":\n        found.append(MOON(item.name.span))\n'
    copy.edit(RAISING, check, check.replace("    # Kinds", f"{more}    # Kinds"))
    copy.edit(RAISING, "def target_of(", f"{declared}\n\ndef target_of(")
    copy.edit(RAISING, "import Diagnostic, TschedError", "import Diagnostic, TschedError, problem")
    items = "target moon = llvm(cores=4)\n"
    copy.write(f"docs/errors/{FOUND}.md", page(FOUND, "a target on the moon", items, items.replace("moon", "earth")))


def intrinsic(copy: Copy) -> None:
    name = "<8 x float> llvm.fma.v8f32(<8 x float> A, <8 x float> B, <8 x float> C)"
    body = "    desc (A: f32[8, 1], B: f32[8, 1], C: f32[8]) {\n        C[i] += sum[k] A[i, k] * B[i, k]\n    }\n"
    text = f'/// Eight sums of products.\nintrinsic fma_8\n{body}    lower llvm requires "fma" call "{name}"\n'
    copy.write("stdlib/intrinsics/floats.tsched", text)


def backend(copy: Copy) -> None:
    for name in ("__init__.py", "backend.py"):
        copy.write(f"tensorc_dsl/backend/toy/{name}", (TOY / name).read_text(encoding="utf-8"))


def module(copy: Copy) -> None:
    text = "/// The first loop of a block carries a word.\nmodule word_at(b: Block)\nwhen len(b.loops) > 0\n{\n"
    text += '    annotate(b.loops[0], "word", "here")\n}\n'
    copy.write("stdlib/cpu/words.tsched", text)
    test = (
        '"""`stdlib/cpu/words.tsched`."""\n\nfrom tensorc_dsl.faces.api import loads\n\n'
        'SPACE = "use std.cpu.words.{word_at}\\nuse std.ops.{gelu}\\nspace words for llvm { word_at }\\n"\n\n\n'
        "def test_a_loop_has_a_word() -> None:\n"
        '    trace = loads(f"{SPACE}task small = gelu(M=4, N=8) with words", threads=1)["small"].sample(0)\n'
        '    assert \'"word", "here"\' in trace.text\n'
    )
    copy.write("tests/interp/test_words.py", test)


def decision(copy: Copy) -> None:
    text = "# 999. Words stay at loops\n\nStatus: accepted, 2026-11-30\n\nA word that nobody reads costs nothing.\n"
    copy.write("docs/decisions/0999-words-stay.md", text)


TALLY = '''"""`tally`: say how many tasks a file has."""

from __future__ import annotations

import click

from tensorc_dsl.faces.cli.options import common_options, file_argument, load
from tensorc_dsl.faces.report.terminal import write


@click.command()
@file_argument
@common_options
def tally(file: str) -> None:
    """Print how many tasks a file has."""
    write(f"tasks: {len(load(file))}\\n")
'''


def command(copy: Copy) -> None:
    copy.write("tensorc_dsl/faces/cli/commands/tally.py", TALLY)
    formatted = '    ("fmt", F),\n'
    copy.edit("tests/cli/test_hostile_text.py", formatted, f'{formatted}    ("tally", F),\n')


RECIPES: dict[str, tuple[Callable[[Copy], None], dict[str, str]]] = {
    "a primitive": (primitive, {"name": "touch", "code": REFUSED}),
    "a draw": (draw, {"name": "coin"}),
    "an operator": (operator, {"name": "triple"}),
    "a maths function": (maths, {"name": "rint"}),
    "a search strategy": (strategy, {"name": "again"}),
    "an error": (error, {"code": FOUND}),
    "an intrinsic": (intrinsic, {"name": "floats"}),
    "a backend": (backend, {"name": "toy"}),
    "a module or a space, documented with `///`": (module, {"name": "words"}),
    "a decision, where a later engineer would undo it": (decision, {"name": "0999-words-stay"}),
    "a command": (command, {"name": "tally"}),
}
"""By the row of CONTRIBUTING: what it does, and what stands for the placeholders of the row."""


def row(thing: str) -> tuple[set[str], set[str]]:
    """The files that CONTRIBUTING has one write and edit to add something; `the file that raises it` is one of ours here."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (cells,) = re.findall(rf"^\| {thing}(?: \([^|]*\))? \|(.*)\|(.*)\|$", text, re.MULTILINE)
    write, edit = (cell.replace("the file that raises it", f"`{RAISING}`") for cell in cells)
    for placeholder, word in RECIPES[thing][1].items():
        write, edit = (cell.replace(f"<{placeholder}>", word) for cell in (write, edit))
    return set(re.findall(r"`([^`]+)`", write)), set(re.findall(r"`([^`]+)`", edit))


# --- tests -----------------------------------------------------------------------------------------------------------


Touched = dict[str, tuple[set[str], set[str]]]
"""By recipe the files that it has written, and those that it has edited."""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Copy, Touched]]:
    """A copy with all of it added and its parts generated, and what each recipe touched."""
    copy = Copy(tmp_path_factory.mktemp("repository"))
    for name in FOLDERS:  # with bytecode, which holds for files of the same time
        shutil.copytree(ROOT / name, copy.root / name, ignore=shutil.ignore_patterns("node_modules"))
    for name in FILES:
        shutil.copy(ROOT / name, copy.root / name)
    touched: Touched = {}
    for thing, (play, _) in RECIPES.items():
        play(copy)
        touched[thing] = copy.written, copy.edited
        copy.written, copy.edited = set(), set()
    made = copy.run("-m", "docs.generate")
    assert made.returncode == 0, made.stdout
    yield copy, touched
    if copy.commands is not None:
        copy.commands.close()


@pytest.mark.parametrize("thing", RECIPES)
def test_contributing_names_all_that_is_touched(thing: str, played: tuple[Copy, Touched]) -> None:
    assert played[1][thing] == row(thing)


NARROW = (
    "tests/primitives", "tests/explain/test_pages.py", "tests/schedule/test_random_steps.py", "tests/docs/test_tensorir.py",
    "tests/trace/test_distributions.py", "tests/trace/draws/test_coin.py", "tests/stdlib/test_ops.py",
    "tests/search/test_strategies.py", "tests/codegen/test_instructions.py", "tests/check/test_vocabulary.py",
    "tests/cli/test_explain.py", "tests/docs/test_reference.py", "tests/docs/test_decisions.py", "tests/interp/test_words.py",
    "tests/cli/test_hostile_text.py",
)  # fmt: skip
WORDS = (
    "touch", REFUSED, FOUND, "Coin or coin", "triple", "again and (seed or budget or fails)", "fma_8", "rint",
    "every_code or left_over or every_step_and_draw or what_the_table or every_word or every_operator",
    "there_is_an_example or every_refusal or hints_are_for", "generated_parts",
    "decision", "a_loop_has_a_word", "every_command_is_tried or tally",
)  # fmt: skip


def test_what_is_added_passes_the_tests(played: tuple[Copy, Touched]) -> None:
    copy = played[0]
    pytest_ = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0")
    copy.run(*pytest_, "--accept", *NARROW[:2], "-k", f"touch or {REFUSED} or {FOUND}")
    done = copy.run(*pytest_, *NARROW, "-k", " or ".join(f"({w})" for w in WORDS))
    assert done.returncode == 0, done.stdout[-6000:]
    expected = (copy.root / "tests" / "bad" / f"{REFUSED}.expected").read_text(encoding="utf-8")
    assert expected.startswith(f"error[{REFUSED}]: `i` cannot be touched with nothing\n")


def test_what_is_added_keeps_the_layers(played: tuple[Copy, Touched]) -> None:
    done = played[0].run("-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--no-cache")
    assert done.returncode == 0, done.stdout
    assert re.search(r"Contracts: \d+ kept, 0 broken", done.stdout)


def test_the_command_line_knows_it(played: tuple[Copy, Touched]) -> None:
    copy = played[0]
    uses = "use std.ops.{triple}\nuse std.intrinsics.{fma_8}\n"
    steps = '    let n ~ sample_coin(2, 4)\n    let [a, _] = split(Y.loops[0], [_, n])\n    touch(a, "here")\n'
    (copy.root / "x.tsched").write_text(
        f"{uses}schedule s for triple {{\n{steps}}}\ntask small = triple(M=8, N=3)\n"
        "compute cut(X: f32[M]) -> Y: f32[M] { Y[i] = rint(X[i]) }\ntarget c = toy(cores=1)\n"
        "module nothing(b: Block) when false { }\nspace plain for c { nothing }\ntask cut_8 = cut(M=8) with plain\n"
    )
    assert copy.says("check", "x.tsched") == "x.tsched: ok, 2 tasks\n"
    assert 'touch(i_0, "here")' in copy.says("sample", "x.tsched", "small")
    assert "Leave" not in copy.says("explain", "touch") and "carries the word" in copy.says("explain", "touch")
    assert "both equally likely" in copy.says("explain", "sample_coin")
    assert "number next to" in copy.says("explain", "rint")
    assert "nothing to touch with" in copy.says("explain", REFUSED)
    assert copy.says("tally", "x.tsched") == "tasks: 2\n"
    assert "again" in copy.says("tune", "--strategy", "help")
    assert "the toy has no C for Call" in copy.says("show", "x.tsched", "cut_8", "--stage", "c", status=1)
    assert "llvm.rint" in copy.says("show", "x.tsched", "cut_8", "--stage", "llvm", "--target", "native")
    assert "| `triple` | triple | Three times what there is. |" in (copy.root / "docs" / "operators.md").read_text(
        "utf-8"
    )
    for path in ("README.md", "docs/reference/primitives.md", "docs/tensorir.md"):
        assert "`touch`" in (copy.root / path).read_text(encoding="utf-8"), path
    assert "`sample_coin(" in (copy.root / "docs/reference/draws.md").read_text(encoding="utf-8")
