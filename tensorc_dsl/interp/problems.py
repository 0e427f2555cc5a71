"""What expanding a schedule can find, E0501–E0562: each declared once with its message and its repair.

The checker finds most of these before anything is expanded, with more to say; expansion has the last word.
"""

from __future__ import annotations

from typing import ParamSpec

from tensorc_dsl.base.diagnostic import Note, Problem, TschedError, problem
from tensorc_dsl.base.source import Span
from tensorc_dsl.schedule.step import refusal

Facts = ParamSpec("Facts")


def fail(
    declared: Problem[Facts], span: Span | None, notes: tuple[Note, ...] = (), *args: Facts.args, **facts: Facts.kwargs
) -> TschedError:
    """The exception to raise."""
    return TschedError(declared(span, notes, *args, **facts))


@problem("E0501", "`{name}` is no distribution", help="draw from one: their names begin with `sample_`")
def NO_DISTRIBUTION(*, name: str) -> None: ...
@problem("E0502", "`{name}`: {reason}", help="{usage}")
def DRAW_ARGUMENTS(*, name: str, reason: str, usage: str) -> None: ...
@problem(
    "E0502",
    "a draw cannot have {kind} among its values: a trace has no text for it",
    help="draw a number, and choose with it: `if n == 0 {{ … }} else {{ … }}`",
)
def NO_TEXT(*, kind: str) -> None: ...
@problem(
    "E0503",
    "a weight is a finite number from 0; this is {found}",
    help="write such a number: `either first(0.7) {{ … }} or second(0.3) {{ … }}`",
)
def BAD_WEIGHT(*, found: float | int | str) -> None: ...
@problem("E0503", "a chance is a number from 0 to 100; this is {found}", help="`maybe(70)`: 70 times of a hundred")
def BAD_CHANCE(*, found: float | int | str) -> None: ...
@problem("E0503", "every branch has weight 0", help="give one of them a positive weight")
def NO_WEIGHT() -> None: ...
@problem("E0504", "`{name}` cannot be pinned to {value}", "not in the draw's support", "use {legal}")
def ILLEGAL_PIN(*, name: str, value: str, legal: str) -> None: ...
@problem("E0504", "a pin is a value or a list of ints; this is {found}", help="use {legal}")
def NO_PIN(*, found: str, legal: str) -> None: ...
@problem("E0505", "`{name}` is drawn with `~`", help="let x ~ {name}(…)")
def DRAWN(*, name: str) -> None: ...
@refusal("E0506", "`{name}` cannot be {value} here", help="use {legal}")
def ILLEGAL(*focus: str, name: str, value: str, legal: str) -> None: ...
@problem("E0507", "nothing decides the draw `{name}`", help="replay a trace that has it, or draw with a seed: {legal}")
def UNDECIDED(*, name: str, legal: str) -> None: ...


@problem("E0520", "there is no `{name}` here", "not found in this scope", "bind it before: `let {name} = …`")
def UNKNOWN_NAME(*, name: str) -> None: ...
@problem(
    "E0521",
    "this belongs to a compute, not to a schedule",
    help="make a list with `for … {{ yield … }}`, and call a function on it",
)
def IN_COMPUTE_ONLY() -> None: ...
@problem(
    "E0522",
    "a condition is true or false; this is {found}",
    help="pass a bool; with `bool` as the type of the parameter, `check` finds such calls",
)
def NO_CONDITION(*, found: str) -> None: ...
@problem(
    "E0523",
    "`{op}` does not take {lhs} and {rhs}",
    help="numbers have all operators, strings `+` and comparisons, lists `+`; `==` and `!=` take any two values",
)
def OPERANDS(*, op: str, lhs: str, rhs: str) -> None: ...
@problem("E0524", "`{text}` has no value: {reason}", help="ask before: `if … {{ … }}`")
def NO_RESULT(*, text: str, reason: object) -> None: ...
@problem("E0524", "`{op}` makes a number of {bits} bits; {most} are allowed", help="use smaller numbers")
def TOO_MANY_BITS(*, op: str, bits: int, most: int) -> None: ...
@problem(
    "E0525",
    "{kind} has no `{name}`",
    "no such attribute",
    "pass a value that has it; with the type of the parameter, `check` finds such values",
)
def NO_ATTRIBUTE(*, kind: str, name: str) -> None: ...
@refusal("E0548", "{what}: {value} is not within {low}..{high}", help="draw other tiles")
def NOT_WITHIN(*focus: str, what: str, value: int, low: int, high: int) -> None: ...
@problem(
    "E0525",
    "{kind} has no method `{name}` that takes this",
    help="call it on a value that has it, with the arguments that it takes: docs/reference/queries.md has all",
)
def NO_METHOD(*, kind: str, name: str) -> None: ...
@problem("E0526", "{kind} is not indexed like this", help="`[n]` of a list or a string, or `[a:b]`, with ints")
def NO_INDEX(*, kind: str) -> None: ...
@problem("E0526", "a slice goes from an int to an int; this is {found}", help="write ints, or leave an end out: `[a:]`")
def BAD_BOUND(*, found: str) -> None: ...
@problem(
    "E0527",
    "there is no element {position}: the list has {count}",
    help="ask `len(…)` before; the last element is `[-1]`",
)
def NO_ELEMENT(*, position: int, count: int) -> None: ...
@problem(
    "E0528",
    "an index map is made of its parameters, integers, + - * / % and xor",
    help="write a whole number for each part of the map",
)
def INDEX_MAP() -> None: ...
@problem(
    "E0529", "{what} of {count} {parts}; {most} are allowed", help="compute with numbers where only a number is needed"
)
def TOO_LONG(*, what: str, count: int | str, parts: str, most: int) -> None: ...
@problem(
    "E0529",
    "a list of lists, or a module with modules as options, that is more than {most} levels deep",
    help="make one list of all elements, or several lists; pass a module on as it is",
)
def NESTED_LIST(*, most: int) -> None: ...
@problem("E0530", "`{name}` does not take {found}", help="{usage}")
def FUNCTION_ARGUMENTS(*, name: str, found: str, usage: str) -> None: ...
@problem(
    "E0531",
    "there is no module `{name}`",
    "a rule of a space is a module",
    "write `module {name}(…) {{ … }}`, or bring it with a `use`",
)
def UNKNOWN_RULE(*, name: str) -> None: ...
@problem(
    "E0532", "the expansion takes more than {most} steps", help="write the result of the loops instead of the loops"
)
def TOO_MANY_STEPS(*, most: int) -> None: ...
@problem(
    "E0532",
    "the trace has more than {most} lines, with those that were undone",
    help="write the result of the loops instead of the loops",
)
def TOO_MANY_LINES(*, most: int) -> None: ...
@problem(
    "E0532",
    "calls and blocks are nested more than {most} deep here",
    help="repeat with a `for` over a list, or write fewer calls of calls",
)
def TOO_DEEP(*, most: int) -> None: ...
@problem(
    "E0532",
    "`{block}` stands in {count} loops; {most} are allowed",
    help="split fewer times, or `fuse` loops before",
)
def DEEP_LOOPS(*, block: str, count: int, most: int) -> None: ...
@problem(
    "E0533", "`yield` stands in a `for`", help="put it into a `for`, or leave it out where the value is not needed"
)
def LONELY_YIELD() -> None: ...
@problem("E0533", "`so_far()` stands in a `for`, whose list it is", help="put it into a `for` that yields, or use `[]`")
def LONELY_SO_FAR() -> None: ...
@problem(
    "E0534",
    "only a list has parts; this is {found}",
    help="pass a list; with `list` as the type of the parameter, `check` finds such calls",
)
def NO_PARTS(*, found: str) -> None: ...
@problem(
    "E0535",
    "{names} names for a list of {count}",
    "the list has {count} elements",
    help="write a name for each element, and `_` for one that is not needed",
)
def OTHER_COUNT(*, names: int, count: int) -> None: ...
@problem("E0536", "`for` runs over a list; this is {found}", help="pass a list, if only of one element")
def NO_LIST(*, found: str) -> None: ...
@problem(
    "E0537", "only names can be called", help="write the name of a primitive, a module or a function before the bracket"
)
def NOT_CALLABLE() -> None: ...
@problem(
    "E0538",
    "there is no primitive, module or function `{name}`",
    help="write `module {name}(…) {{ … }}`, or bring it with a `use`",
)
def UNKNOWN_CALL(*, name: str) -> None: ...
@problem(
    "E0539", "module `{name}` reaches itself: {chain}", "modules cannot recurse", help="repeat with a `for` over a list"
)
def RECURSION(*, name: str, chain: str) -> None: ...
@problem("E0538", "`{name}` is {kind}, and cannot be called", help="call a primitive, a module or a function")
def NOT_A_MODULE(*, name: str, kind: str) -> None: ...
@problem(
    "E0540",
    "`{module}` cannot be the `{parameter}` of `{name}`: {reason}",
    help="pass a module that takes what the parameter declares; what else it needs is given by name where it is passed",
)
def MISFIT(*, module: str, parameter: str, name: str, reason: str) -> None: ...
@problem("E0540", "`{name}` {reason}", help="{usage}")
def MODULE_ARGUMENTS(*, name: str, reason: str, usage: str) -> None: ...
@problem("E0541", "`{name}` needs `{parameter}`", help="{usage}")
def MISSING(*, name: str, parameter: str, usage: str) -> None: ...
@problem("E0542", "`{name}`: {reason}", help="{usage}")
def STEP_ARGUMENTS(*, name: str, reason: str, usage: str) -> None: ...
@problem("E0542", "`{parameter}` of `{name}` is given twice", help="leave one of the two out")
def TWICE(*, parameter: str, name: str) -> None: ...
@problem(
    "E0543",
    "`{name}` takes {wanted} for `{parameter}`; this is {found}",
    help="pass {wanted}; with the type of what is passed, `check` finds such calls",
)
def ARGUMENT_KIND(*, name: str, wanted: str, parameter: str, found: str) -> None: ...
@problem("E0546", "the compute calls {what} `{name}`: every schedule has that name already", help="give it another one")
def TAKEN_NAME(*, what: str, name: str) -> None: ...
@problem(
    "E0547",
    "a map goes from numbers, strings or bools to their weights; this is {found}",
    help="write a number, a string or a bool before the `:`, and a number behind it",
)
def MAP_ENTRY(*, found: str) -> None: ...


@problem(
    "E0551",
    "there is no space or schedule `{name}`",
    help="name one of this file or one that it uses, or leave `with` out where there is only one",
)
def UNKNOWN_SPACE(*, name: str) -> None: ...
@problem(
    "E0552",
    "nothing says how `{compute}` may be computed",
    "this task has no space",
    "write `schedule … for {compute}`, or `use std.cpu` for the library's space",
)
def NO_SPACE(*, compute: str) -> None: ...
@problem(
    "E0553",
    "{count} ways to compute `{compute}`: {names}",
    "which one?",
    "say it: `task {task} = {compute}(…) with {first}`",
)
def SEVERAL_SPACES(*, count: int, compute: str, names: str, task: str, first: str) -> None: ...
@problem("E0554", "{file} has {count} for `{compute}`", help="it has {others}")
def SEVERAL_SCHEDULES(*, file: str, count: str, compute: str, others: str) -> None: ...
@problem("E0555", "`{file}` has no target `{name}`")
def UNKNOWN_TARGET(*, file: str, name: str) -> None: ...
@problem(
    "E0558", "space `{space}` is for targets of kind `{kind}`, and the file has {count}", "for which one?", "{known}"
)
def WHICH_TARGET(*, space: str, kind: str, count: str, known: str) -> None: ...
@problem("E0556", "`{task}` has no draw `{name}`")
def UNKNOWN_DRAW(*, task: str, name: str) -> None: ...
@problem(
    "E0559",
    "no step of `{schedule}` depends on the draw `{name}`",
    "it could be anything",
    help="a schedule keeps the branch that was taken: search the space again, `--condition {name}=…` without `--replay`",
)
def NOT_USED(*, schedule: str, name: str) -> None: ...
@problem("E0557", "`{text}` is no value of a draw", help='write it as after `:=`: 8, "text", true or [4, 16]')
def BAD_VALUE(*, text: str) -> None: ...


@problem(
    "E0562",
    "`{name}` is no open size of this task",
    "here it is one number, or computed from others",
    help="leave it open, `{name}=1..64`, or write the steps without a `select`",
)
def NOT_OPEN(*, name: str) -> None: ...
