"""The findings of the compute layer, E0401–E0419: each declared once with its message and its repair."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from tensorc_dsl.diagnostic import Diagnostic, Note, help_note
from tensorc_dsl.source import Span


@dataclass(frozen=True, slots=True)
class Problem:
    """A declared finding: `message`, `label` and `help` are format strings over the facts."""

    code: str
    message: str
    label: str = ""
    help: str = ""

    def __call__(self, span: Span | None, *, notes: tuple[Note, ...] = (), **facts: object) -> Diagnostic:
        helps = (help_note(self.help.format(**facts)),) if self.help else ()
        return Diagnostic(self.code, self.message.format(**facts), span, self.label.format(**facts), (*notes, *helps))


class Invalid(Exception):
    """Ends the work on one stage or one binding; None when the cause is already reported."""

    def __init__(self, diagnostic: Diagnostic | None = None) -> None:
        super().__init__(diagnostic)
        self.diagnostic = diagnostic


def suggestion(name: str, candidates: Iterable[str]) -> tuple[Note, ...]:
    """A "did you mean" line when some candidate is close to `name`, else the list of all that there are."""
    known = sorted(set(candidates))
    close = get_close_matches(name, known, n=1)
    if not close:
        close = [c for c in known if c.lower() == name.lower()]
    if close:
        return (help_note(f"did you mean `{close[0]}`?"),)
    return (help_note("there are: " + ", ".join(f"`{k}`" for k in known)),) if known else ()


UNKNOWN_BINDING = Problem("E0401", "`{compute}` has no dimension or attribute `{name}`")
COMPUTED_BINDING = Problem(
    "E0401", "`{name}` cannot be bound: `{compute}` computes it", help="leave `{name}` out; it follows from the others"
)
MISSING_BINDING = Problem(
    "E0402", "`{name}` of `{compute}` has no value", "bound here", help="give it one: `{compute}({name}={example})`"
)
NOT_A_KIND = Problem("E0403", "`{name}` is {wanted}, but was given {value}")
UNKNOWN_TYPE = Problem("E0403", "there is no type `{name}`")
NEGATIVE = Problem("E0404", "{what} is {value}: it must not be negative", "= {value}", help="check the sizes: {sizes}")
TOO_LARGE = Problem("E0404", "{what} is {value}: more than a 64-bit machine can index", "= {value}")
UNKNOWN_NAME = Problem("E0405", "there is no {what} `{name}` here")
TOO_EARLY = Problem("E0405", "`{name}` is computed later", help="a stage reads inputs and the stages above it")
TAKEN = Problem("E0406", "`{name}` is already {what}", help="give this one a name of its own")
NO_RANGE = Problem(
    "E0407",
    "the range of index `{name}` cannot be inferred",
    "never a subscript by itself",
    help="write it: `{name} in <extent>`",
)
RANGES_DIFFER = Problem(
    "E0408",
    "index `{name}` has two ranges: {first} and {second}",
    "{second} here",
    help="if reading a part is meant, write the range: `{name} in <extent>`",
)
RANK = Problem("E0409", "`{name}` has {rank} dimensions, but {count} subscripts are given")
UNWRITTEN = Problem(
    "E0410", "output `{name}` is never computed", help="add a stage: `{name}[{indices}] = …` in the body"
)
NOT_AN_OUTPUT = Problem(
    "E0410", "`{name}` is not an output of `{compute}`", help="an intermediate is written `let {name}[…] = …`"
)
OUT_OF_BOUNDS = Problem(
    "E0411",
    "subscript {position} of `{name}` can be {value}, but the dimension is {extent}",
    "{value} when {values}",
)
UNPROVEN = Problem(
    "E0412",
    "subscript {position} of `{name}` cannot be proven to stay inside its dimension of {extent}",
    "{interval}, as far as is known",
    help="in subscripts and the conditions around them, indices may be added, and multiplied or divided by sizes",
)
DATA_SUBSCRIPT = Problem("E0412", "a subscript cannot depend on the values of a tensor (`{name}`)", "a value")
MIXED_TYPES = Problem("E0413", "`{op}` mixes {lhs} and {rhs}", "{lhs} {op} {rhs}", help="convert one: `{cast}`")
INDEX_AS_VALUE = Problem(
    "E0413", "an index is not a value of type {dtype}", "an index", help="convert it: `{dtype}({text})`"
)
WRONG_TYPE = Problem(
    "E0413", "{what} is {found}, but {dtype} is needed", "{found}", help="convert it: `{dtype}({text})`"
)
NOT_BOOL = Problem("E0413", "{what} is {found}, not a condition", help="compare it: `{text} != 0`")
NO_BOOL_CAST = Problem("E0413", "`bool` is not a conversion", help="compare instead: `{text} != 0`")
BOOL_ARITHMETIC = Problem(
    "E0413", "`{op}` does not work on bool", help="use `and`, `or`, `not`, or convert with `f32(…)`"
)
LITERAL = Problem("E0414", "{value} does not fit type {dtype}")
NO_TYPE = Problem("E0414", "nothing here says which type {value} has", help="write one: `f32({value})`")
UNSUPPORTED = Problem("E0415", "{what} is not supported yet", help="{repair}")
UNKNOWN_FUNCTION = Problem("E0416", "there is no function `{name}`")
ARITY = Problem("E0416", "`{name}` takes {wanted}, but was given {count}")
NEEDS_FLOAT = Problem("E0416", "`{name}` works on floats, not on {found}", help="convert first: `{name}(f32({text}))`")
DIVISION_BY_ZERO = Problem("E0417", "this divides by {value}", "= {value}")
NOT_IN_COMPUTE = Problem("E0418", "{what} cannot stand in a compute")
NOT_AN_INDEX = Problem("E0418", "{what} cannot stand in an extent or a subscript")
NO_INDEX_LIST = Problem("E0418", "`{name}` is a tensor", help="say which element: `{name}[{indices}]`")
NOT_REDUCIBLE = Problem("E0419", "`{reducer}` reduces {wanted}, not {found}", help="{repair}")
