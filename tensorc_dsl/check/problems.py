"""The findings of the schedule layer and of files, E0220–E0249: each declared once with its message and its repair."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tensorc_dsl.diagnostic import Diagnostic, Note, Problem, Severity, help_note
from tensorc_dsl.source import Span
from tensorc_dsl.syntax.names import did_you_mean


def near(name: str, candidates: Iterable[str]) -> tuple[Note, ...]:
    """A "did you mean" line, or the list of names if they are few."""
    text = did_you_mean(name, candidates)
    return (help_note(text),) if text else ()


def where(what: str, span: Span) -> Note:
    """A note that refers to another place: `= note: what: file:line:column`."""
    line, column = span.source.line_column(span.start)
    return Note("note", f"{what}: {span.source.name}:{line}:{column}")


def warning(diagnostic: Diagnostic) -> Diagnostic:
    return replace(diagnostic, severity=Severity.WARNING)


UNKNOWN_NAME = Problem("E0220", "there is no `{name}` here")
PARTLY_BOUND = Problem(
    "E0220", "`{name}` is not bound on every way here", help="name it in every branch, or before them"
)
DUPLICATE_ITEM = Problem("E0221", "there are two {kind}s `{name}`", "the second one")
TAKEN_NAME = Problem("E0222", "`{name}` is {what} already", help="give the {item} another name")
UNKNOWN_CALL = Problem("E0223", "there is no primitive, module or function `{name}`")
UNKNOWN_RULE = Problem("E0223", "there is no module or space `{name}`", help="a rule is a module or another space")
NOT_CALLABLE = Problem("E0223", "only names and methods can be called")
TOO_MANY = Problem("E0224", "`{name}` takes {wanted}; given: {count}", help="{usage}")
NO_SPACE_CALL = Problem("E0224", "space `{name}` takes no arguments", help="name it without parentheses: `{name}`")
NO_PARAMETER = Problem("E0224", "`{name}` has no parameter `{parameter}`")
GIVEN_TWICE = Problem("E0224", "`{parameter}` of `{name}` is given twice", "the second time", help="{usage}")
MISSING = Problem("E0224", "`{name}` needs `{parameter}`", help="{usage}")
DRAWN = Problem("E0225", "`{name}` is drawn with `~`", help="write `let x ~ {name}(…)`")
NO_DISTRIBUTION = Problem("E0225", "`{name}` is no distribution")
NO_ATTRIBUTE = Problem("E0226", "{kind} has no `{name}`")
UNKNOWN_ATTRIBUTE = Problem("E0226", "nothing has an attribute `{name}`")
UNKNOWN_METHOD = Problem("E0226", "there is no method `{name}`")
NO_METHOD = Problem("E0226", "{kind} has no method `{name}`")
IS_METHOD = Problem("E0226", "`{name}` of {kind} is asked with parentheses", help="{usage}")
NOT_METHOD = Problem("E0226", "`{name}` of {kind} is asked without parentheses")
UNKNOWN_COMPUTE = Problem("E0227", "there is no compute `{name}`")
UNKNOWN_CHOICE = Problem("E0227", "there is no schedule or space `{name}`")
OTHER_COMPUTE = Problem("E0227", "schedule `{name}` is for `{compute}`, and this task computes `{wanted}`")
UNKNOWN_TARGET = Problem("E0227", "there is no target `{name}`")
OTHER_KIND = Problem("E0227", "space `{name}` is for `{kind}`, and `{space}` for `{own}`")
RECURSION = Problem("E0228", "module `{name}` reaches itself: {chain}", help="modules cannot recurse")
SPACE_IN_ITSELF = Problem("E0228", "space `{name}` holds itself: {chain}")
NOT_A_SIZE = Problem("E0229", "`{name}` must be bound to a number or a type")
NO_SIZES = Problem(
    "E0229",
    "`{range}` is no range of sizes for `{name}`",
    help="write the smallest, at least 1, and the largest: `{name}=1..4096`",
)
NOT_TIMED = Problem(
    "E0247",
    "`{value}` is no size of `{name}`, a whole number from {low} to {high}",
    help="sizes to be timed at lie in the range before `at`",
)
TIMED_APART = Problem(
    "E0247",
    "`{name}` is timed at {count} sizes, `{first}` at {wanted}",
    help="sizes are timed together, the first ones, then the second ones: give as many of each",
)
BOUND_TWICE = Problem("E0229", "`{name}` is bound twice", "the second time")
IN_COMPUTE_ONLY = Problem("E0230", "{what} belongs to a compute, not to a schedule")
LONELY_YIELD = Problem("E0231", "`yield` stands in a `for`")
UNRESOLVED = Problem(
    "E0232",
    "`{path}` is not found",
    help="a `use` names a file or a folder of the project or of `std`, without `.tsched`",
)
AMBIGUOUS = Problem(
    "E0234", "`{path}` is found in several places", help="rename one, or leave its folder out of the search path"
)
CYCLE = Problem("E0233", "files use each other: {chain}")
TWO_SOURCES = Problem(
    "E0234", "{kind} `{name}` comes from two places", help="rename one, or import only what is needed: `use a.{{name}}`"
)
NOT_IN_FILE = Problem("E0235", "`{path}` has no `{name}`")
NOT_IMPORTED = Problem("E0236", "{kind} `{name}` stays in its file", help="import the compute and write a task for it")
UNKNOWN_TYPE = Problem("E0237", "there is no type `{name}` for a parameter")
SAME_PARAMETER = Problem("E0238", "there are two parameters `{name}`", "the second one")
RULES_TWICE = Problem("E0238", "rules of space `{name}` stand in this space already", help="name it once")
TOO_MANY_RULES = Problem(
    "E0246",
    "this space has more than {most} rules, with those of the spaces in it",
    help="leave out what is not needed",
)
SAME_NAMES = Problem("E0238", "`{name}` stands here twice", "the second one")
DISCARDED_DRAW = Problem("E0239", "a draw needs a name", help="its name is how a trace pins it")

WRONG_KIND = Problem("E0240", "`{name}` takes {wanted} for `{parameter}`; this is {found}", "{found}", "{usage}")
OPERANDS = Problem("E0241", "`{op}` does not take {lhs} and {rhs}")
NO_CONDITION = Problem("E0242", "a condition is true or false; this is {found}", "{found}")
NO_WEIGHT = Problem("E0242", "a weight is a number; this is {found}", "{found}")
NO_LIST = Problem("E0243", "{what}; this is {found}", "{found}")
NO_RANGE_LIST = Problem(
    "E0243", "{what}; this is a range", "a range", "`range(2, 5)` is the list of the ints from 2 to 4"
)
NO_INDEX = Problem(
    "E0243", "{kind} is not indexed like this", help="`[n]` of a list or a string, or `[a:b]`, with ints"
)
NO_BOUND = Problem("E0243", "a slice goes from an int to an int; this is {kind}")
NO_FACT = Problem("E0245", "a target has no fact `{name}`")
WRONG_FACT = Problem("E0245", "`{name}` of a target is {wanted}")
TAKEN_TARGET = Problem("E0245", "`{name}` is a target already", help="give this one another name")
NOT_CONSTANT = Problem(
    "E0260",
    "a constant is written down, and not computed",
    help="a number, a string, `true`, `false`, a list of these, or a map from them to weights",
)
CONSTANT_AGAIN = Problem("E0261", "`{name}` is a constant of this file", "bound again", "give one of them another name")
DEFAULT_KIND = Problem("E0244", "`{name}` is {wanted}, but its default is {found}", "{found}")

UNUSED_LET = Problem("W0201", "`{name}` is never used", help="{repair}")
UNUSED_DRAW = Problem(
    "W0202", "the draw `{name}` is never used", help="it makes the search larger and changes nothing; remove it"
)
UNUSED_PARAMETER = Problem(
    "W0203", "the parameter `{name}` is never used", help="remove it, or call it `_{name}` where it must be there"
)
SHADOWED = Problem("W0204", "`{name}` hides another `{name}`", help="give one of them a name of its own")
