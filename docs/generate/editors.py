"""The words of the language by class, for the highlighters of all editors: from the grammar and the declarations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from textwrap import fill
from typing import Any

from docs.generate.library import SUMS, sums
from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.check.kinds import PARAM_TYPES
from tensorc_dsl.elaborate.names import ARG_REDUCERS, FUNCTIONS, REDUCERS
from tensorc_dsl.ir.annotations import ASYNC, ORDER, ROLES, STAGES, STREAM
from tensorc_dsl.ir.dtypes import DTYPES
from tensorc_dsl.ir.program import INTRINSIC, MAX_STEP
from tensorc_dsl.ir.reductions import REDUCER
from tensorc_dsl.schedule.primitives import ALL_STEPS
from tensorc_dsl.schedule.primitives.specialize import REGISTERS
from tensorc_dsl.schedule.trace.draws import DRAWS
from tensorc_dsl.syntax.engine import lark_parser, tables
from tensorc_dsl.syntax.layout import SOFT_WORDS

ROOT = Path(__file__).resolve().parents[2]
EDITORS = ROOT / "editors"
HIGHLIGHTS = EDITORS / "treesitter" / "queries" / "highlights.scm"
ZED = EDITORS / "zed" / "languages" / "tsched" / "highlights.scm"
VIM = EDITORS / "vim" / "syntax" / "tsched.vim"
VIM_INDENT = EDITORS / "vim" / "indent" / "tsched.vim"
EMACS = EDITORS / "emacs" / "tsched-mode.el"
WORDS = ROOT / "tensorc_dsl" / "syntax" / "highlight" / "words.py"

ANNOTATIONS = (ASYNC, INTRINSIC, MAX_STEP, ORDER, REDUCER, REGISTERS, ROLES, STAGES, STREAM)

_CONSTANTS = ("INF", "NAN", "TRUE", "FALSE", "WILDCARD")

_THINGS = ("item", "program_line", "program_stmt")
"""The rules whose alternatives have names of their own."""

SAID: dict[str, str] = {
    "RESERVED": "Words that are no names.",
    "CONSTANTS": "Words that are values.",
    "SOFT": "Words that are names where a name is expected. Each is in one of the four lists `BEFORE_…`,\n"
    "or is the first of a form of its own: `desc (`, `bound (`, `at [`, `strides [`, `scan [`, `init {`, `try {`,\n"
    "`otherwise {`.",
    "DEFINING": "Soft words that the name of what they define follows. `const` is not among them: types follow it, too.",
    "BEFORE_NAME": "Soft words that a name follows.",
    "BEFORE_STRING": "Soft words that a string follows.",
    "BEFORE_FOR": "Soft words that `for` follows.",
    "BEFORE_VALUE": "Soft words that a value follows, and comes before.",
    "REDUCERS": "Names that begin a reduction in front of `[`.",
    "DTYPES": "Element types.",
    "TYPES": "All types: of elements, and of parameters.",
    "BUILTINS": "Functions, in front of `(`.",
    "PRIMITIVES": "Steps, in front of `(`.",
    "DRAWS": "Distributions, in front of `(`.",
    "ANNOTATIONS": "Keys of annotations that something reads.",
}


def lists() -> dict[str, tuple[str, ...]]:
    """Each list by its name in `SAID`, sorted."""
    spelt = {kind: word for word, kind in tables().keywords["NAME"].items()}
    rules = [_Rule(str(r.origin.name), tuple(str(s.name) for s in r.expansion)) for r in _lark().rules]
    follows = _follows([r for r in rules if r.origin != "name"])

    def before(kind: str) -> set[str]:
        """Soft words that a word of this kind follows, but not any value."""
        return {spelt[k] for k in SOFT_WORDS if kind in follows[k] and "INT" not in follows[k]}

    found = {
        "RESERVED": {w for k, w in spelt.items() if k not in SOFT_WORDS and k not in _CONSTANTS},
        "CONSTANTS": {spelt[k] for k in _CONSTANTS},
        "SOFT": {spelt[k] for k in SOFT_WORDS},
        "DEFINING": {spelt[k] for k in SOFT_WORDS if _defines(k, rules)},
        "BEFORE_NAME": before("NAME"),
        "BEFORE_STRING": before("STRING"),
        "BEFORE_FOR": before("FOR"),
        "BEFORE_VALUE": {spelt[k] for k in SOFT_WORDS if "INT" in follows[k]},
        "REDUCERS": {*REDUCERS, *ARG_REDUCERS},
        "DTYPES": {*DTYPES},
        "TYPES": {*DTYPES, *PARAM_TYPES},
        "BUILTINS": {*v.FUNCTIONS, *FUNCTIONS},
        "PRIMITIVES": {*ALL_STEPS, *v.COMPOUNDS},
        "DRAWS": {*DRAWS},
        "ANNOTATIONS": {*ANNOTATIONS},
    }
    return {name: tuple(sorted(found[name])) for name in SAID}


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule of the grammar: its name, and the names of its parts."""

    origin: str
    parts: tuple[str, ...]


def _lark() -> Any:
    return lark_parser()  # Lark has no types


def _defines(kind: str, rules: Sequence[_Rule]) -> bool:
    """Whether an item or a line of a program begins with the word and a name, and no other rule has the word."""
    home = {r.origin for r in rules if kind in r.parts} - {"name"}
    if len(home) != 1 or not any(home == {*r.parts} for r in rules if r.origin in _THINGS):
        return False
    return any((kind, "name") in zip(r.parts, r.parts[1:], strict=False) for r in rules if {r.origin} == home)


def _follows(rules: Sequence[_Rule]) -> dict[str, set[str]]:
    """For each kind of word and each rule, the kinds of words that can come behind it."""
    first: dict[str, set[str]] = {kind: {kind} for r in rules for kind in r.parts if kind.isupper()}
    first["name"] = {"NAME"}
    _until_the_same(
        lambda: [(first.setdefault(r.origin, set()), first.get(r.parts[0], set())) for r in rules if r.parts]
    )
    behind: dict[str, set[str]] = {part: set() for r in rules for part in (r.origin, *r.parts)}
    steps = [(behind[a], first[b]) for r in rules for a, b in zip(r.parts, r.parts[1:], strict=False)]
    ends = [(behind[r.parts[-1]], behind[r.origin]) for r in rules if len(r.parts) == 1]
    _until_the_same(lambda: steps + ends)
    return behind


def _until_the_same(pairs: Callable[[], list[tuple[set[str], set[str]]]]) -> None:
    """Each first set has grown by the second one, until none grows."""
    grown = True
    while grown:
        grown = False
        for into, new in pairs():
            grown |= not new <= into
            into |= new


def words() -> str:
    """The module of the lists."""
    out = [
        '"""The words of the language by class. `make reference` writes this file from the grammar and the declarations."""\n'
    ]
    for name, found in lists().items():
        text = fill(", ".join(f'"{w}"' for w in found), 116, initial_indent="    ", subsequent_indent="    ")
        out.append(f'{name}: tuple[str, ...] = (\n{text},\n)  # fmt: skip\n"""{SAID[name]}"""\n')
    return "\n".join(out)


def _marked(path: Path, part: Callable[[], str]) -> Callable[[], str]:
    """The file with what is between its two marks as it is now; a mark is a comment, `generated: lists` or `end: lists`."""

    def made() -> str:
        before, begin, rest = re.split(
            r"(^\S+ generated: lists\n)", path.read_text(encoding="utf-8"), flags=re.MULTILINE
        )
        _, end, after = re.split(r"(^\S+ end: lists\n)", rest, flags=re.MULTILINE)
        return f"{before}{begin}{part()}{end}{after}"

    return made


def queries() -> str:
    """The patterns of tree-sitter that have lists of words."""
    found = lists()
    keywords = found["RESERVED"] + found["SOFT"]

    def quoted(names: Iterable[str], indent: str = "  ") -> str:
        return fill(" ".join(f'"{n}"' for n in names), 118, initial_indent=indent, subsequent_indent=indent)

    def any_of(pattern: str, capture: str, names: Iterable[str]) -> str:
        return f"({pattern}\n  (#any-of? {capture}\n{quoted(names, '    ')}))\n"

    keys = "|".join(k.replace(".", "[.]") for k in found["ANNOTATIONS"])
    calls = {"@type.builtin": "DTYPES", "@function.primitive": "PRIMITIVES", "@function.draw": "DRAWS"}
    parts = [
        f"[\n{quoted(keywords)}\n] @keyword\n",
        f'((string) @attribute\n  (#match? @attribute "^\\"({keys})\\"$"))\n',
        f'((string) @string\n  (#not-match? @string "^\\"({keys})\\"$"))\n',
        any_of("[\n  (tensor_type type: (identifier) @type.builtin)\n  (type name: (identifier) @type.builtin)\n]",
               "@type.builtin", found["TYPES"]),
        *(any_of(f"(call function: (identifier) {c})", c, found[name]) for c, name in calls.items()),
        any_of("(call function: (identifier) @function.builtin)", "@function.builtin",
               [n for n in found["BUILTINS"] if not any(n in found[c] for c in calls.values())]),
    ]  # fmt: skip
    return "\n" + "\n".join(parts) + "\n"


def zed() -> str:
    """The queries in the words of Zed's themes, which call a description otherwise."""
    own = HIGHLIGHTS.read_text(encoding="utf-8").replace("@comment.documentation", "@comment.doc")
    return f"; `make reference` writes this file from {HIGHLIGHTS.relative_to(ROOT).as_posix()}.\n{own}"


def vim(names: Sequence[str] = tuple(SAID)) -> str:
    """The lists of these names in the syntax of Vim, as the alternatives of a pattern."""
    out: list[str] = []
    known = lists()
    for name, found in ((name, known[name]) for name in names):
        words = [w.replace(".", "[.]") for w in found]
        text = fill("|".join(words).replace("|", "| "), 112)  # a line may end at any bar
        lines = [line.replace("| ", "|") for line in text.split("\n")]
        out += [f"let s:{name.lower()} = '{lines[0]}'", *(f"      \\ . '{line}'" for line in lines[1:])]
    return "\n".join(out) + "\n"


def emacs() -> str:
    """The lists in Lisp."""
    out: list[str] = []
    for name, found in lists().items():
        text = fill(" ".join(f'"{w}"' for w in found), 116, initial_indent="    ", subsequent_indent="    ").strip()
        out.append(f"\n(defconst tsched--{name.lower().replace('_', '-')}\n  '({text}))\n")
    return "".join(out) + "\n"


def textmate() -> str:
    """The TextMate grammar."""
    # It has the words of the package, which are written before it is made.
    return import_module("docs.generate.textmate").grammar()


FILES: dict[Path, Callable[[], str]] = {
    WORDS: words,
    HIGHLIGHTS: _marked(HIGHLIGHTS, queries),
    ZED: zed,
    VIM: _marked(VIM, vim),
    EMACS: _marked(EMACS, emacs),
    VIM_INDENT: _marked(VIM_INDENT, lambda: vim(("REDUCERS",))),
    EDITORS / "vscode" / "syntaxes" / "tsched.tmLanguage.json": textmate,
    SUMS: sums,
}
"""The files that are generated, or have a part that is. Each is made when those before it are written."""
