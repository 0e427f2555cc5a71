"""The findings of the schedule layer and of files, E0220–E0249: each declared once with its message and its repair."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tensorc_dsl.check.compute_problems import Problem
from tensorc_dsl.diagnostic import Diagnostic, Note, Severity, help_note
from tensorc_dsl.source import Span
from tensorc_dsl.syntax.names import did_you_mean


def near(name: str, candidates: Iterable[str]) -> tuple[Note, ...]:
    """A "did you mean" line, or the few names that there are."""
    text = did_you_mean(name, candidates)
    return (help_note(text),) if text else ()


def where(what: str, span: Span) -> Note:
    """A line that points to another place: `= note: what: file:line:column`."""
    line, column = span.source.line_column(span.start)
    return Note("note", f"{what}: {span.source.name}:{line}:{column}")


def warning(diagnostic: Diagnostic) -> Diagnostic:
    return replace(diagnostic, severity=Severity.WARNING)


UNKNOWN_NAME = Problem("E0220", "there is no `{name}` here")
DUPLICATE_ITEM = Problem("E0221", "there are two {kind}s `{name}`", "the second one")
TAKEN_NAME = Problem("E0222", "`{name}` is {what} already", help="give the module another name")
UNKNOWN_CALL = Problem("E0223", "there is no primitive, module or function `{name}`")
UNKNOWN_RULE = Problem("E0223", "there is no module `{name}`", help="a rule of a space is a module")
NOT_CALLABLE = Problem("E0223", "only names and methods can be called")
TOO_MANY = Problem("E0224", "`{name}` takes {wanted}; given: {count}", help="{usage}")
NO_PARAMETER = Problem("E0224", "`{name}` has no parameter `{parameter}`")
GIVEN_TWICE = Problem("E0224", "`{parameter}` of `{name}` is given twice", "the second time", help="{usage}")
MISSING = Problem("E0224", "`{name}` needs `{parameter}`", help="{usage}")
DRAWN = Problem("E0225", "`{name}` is drawn with `~`", help="write `let x ~ {name}(…)`")
NO_DISTRIBUTION = Problem("E0225", "`{name}` is no distribution")
LATER = Problem("E0225", "`{name}` is not available yet", help="`sample_categorical` draws from a list")
NO_ATTRIBUTE = Problem("E0226", "{kind} has no `{name}`")
UNKNOWN_ATTRIBUTE = Problem("E0226", "nothing has an attribute `{name}`")
NO_METHOD = Problem("E0226", "there is no method `{name}`")
UNKNOWN_COMPUTE = Problem("E0227", "there is no compute `{name}`")
UNKNOWN_CHOICE = Problem("E0227", "there is no schedule or space `{name}`")
OTHER_COMPUTE = Problem("E0227", "schedule `{name}` is for `{compute}`, and this task computes `{wanted}`")
UNKNOWN_TARGET = Problem("E0227", "there is no target `{name}`")
RECURSION = Problem("E0228", "module `{name}` reaches itself: {chain}", help="modules cannot recurse")
NOT_A_SIZE = Problem("E0229", "`{name}` is bound to a number or a type")
OPEN_SIZE = Problem(
    "E0229", "a range leaves `{name}` open; tasks with open dimensions are not available yet", help="give one size"
)
BOUND_TWICE = Problem("E0229", "`{name}` is bound twice", "the second time")
IN_COMPUTE_ONLY = Problem("E0230", "{what} belongs to a compute, not to a schedule")
LONELY_YIELD = Problem("E0231", "`yield` stands in a `for`")
UNRESOLVED = Problem(
    "E0232",
    "`{path}` is not found",
    help="a `use` names a file or a folder of the project or of `std`, without `.tsched`",
)
CYCLE = Problem("E0233", "files use each other: {chain}")
TWO_SOURCES = Problem(
    "E0234", "{kind} `{name}` comes from two places", help="rename one, or import only what is needed: `use a.{{name}}`"
)
NOT_IN_FILE = Problem("E0235", "`{path}` has no `{name}`")
NOT_IMPORTED = Problem("E0236", "{kind} `{name}` stays in its file", help="import the compute and write a task for it")
UNKNOWN_TYPE = Problem("E0237", "a parameter is not a `{name}`")
SAME_PARAMETER = Problem("E0238", "there are two parameters `{name}`", "the second one")
SAME_NAMES = Problem("E0238", "`{name}` stands here twice", "the second one")
DISCARDED_DRAW = Problem("E0239", "a draw needs a name", help="its name is how a trace pins it")

UNUSED_LET = Problem("W0201", "`{name}` is never used", help="{repair}")
UNUSED_DRAW = Problem(
    "W0202", "the draw `{name}` is never used", help="it makes the search larger and changes nothing; remove it"
)
