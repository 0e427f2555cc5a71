"""What expanding a schedule can find, E0501–E0559: each declared once with its message and its repair.

The checker finds most of these before anything is expanded, with more to say; expansion has the last word.
"""

from __future__ import annotations

from tensorc_dsl.diagnostic import Note, Problem, TschedError
from tensorc_dsl.schedule.refusal import Refusal
from tensorc_dsl.source import Span


def fail(problem: Problem, span: Span | None, *notes: Note, **facts: object) -> TschedError:
    """The exception to raise."""
    return TschedError(problem(span, notes=notes, **facts))


NO_DISTRIBUTION = Problem("E0501", "`{name}` is no distribution")
DRAW_ARGUMENTS = Problem("E0502", "`{name}`: {reason}", help="{usage}")
BAD_WEIGHT = Problem("E0503", "a weight is a finite number from 0; this is {found}")
BAD_CHANCE = Problem(
    "E0503", "a chance is a number from 0 to 100; this is {found}", help="`maybe(70)`: 70 times of a hundred"
)
NO_WEIGHT = Problem("E0503", "every branch has weight 0", help="give one of them a positive weight")
ILLEGAL_PIN = Problem("E0504", "`{name}` cannot be pinned to {value}", "not in the draw's support", "use {legal}")
NO_PIN = Problem("E0504", "a pin is a value or a list of ints; this is {found}", help="use {legal}")
DRAWN = Problem("E0505", "`{name}` is drawn with `~`", help="let x ~ {name}(…)")
ILLEGAL = Refusal("E0506", "`{name}` cannot be {value} here", help="use {legal}")
UNDECIDED = Problem(
    "E0507", "nothing decides the draw `{name}`", help="replay a trace that has it, or draw with a seed: {legal}"
)

UNKNOWN_NAME = Problem("E0520", "there is no `{name}` here", "not found in this scope")
IN_COMPUTE_ONLY = Problem("E0521", "this belongs to a compute, not to a schedule")
NO_CONDITION = Problem("E0522", "a condition is true or false; this is {found}")
OPERANDS = Problem("E0523", "`{op}` does not take {lhs} and {rhs}")
NO_RESULT = Problem("E0524", "`{text}` has no value: {reason}")
TOO_MANY_BITS = Problem("E0524", "`{op}` makes a number of {bits} bits; {most} are allowed")
NO_ATTRIBUTE = Problem("E0525", "{kind} has no `{name}`", "no such attribute")
NOT_WITHIN = Refusal("E0548", "{what}: {value} is not within {low}..{high}", help="draw other tiles")
NO_METHOD = Problem("E0525", "{kind} has no method `{name}` that takes this")
NO_INDEX = Problem(
    "E0526", "{kind} is not indexed like this", help="`[n]` of a list or a string, or `[a:b]`, with ints"
)
BAD_BOUND = Problem("E0526", "a slice goes from an int to an int; this is {found}")
NO_ELEMENT = Problem("E0527", "there is no element {position}: the list has {count}")
INDEX_MAP = Problem("E0528", "an index map is made of its parameters, integers, + - * / % and xor")
TOO_LONG = Problem("E0529", "{what} of {count} {parts}; {most} are allowed")
NESTED_LIST = Problem("E0529", "a list of lists that is more than {most} levels deep")
FUNCTION_ARGUMENTS = Problem("E0530", "`{name}` does not take {found}", help="{usage}")
UNKNOWN_RULE = Problem("E0531", "there is no module `{name}`", "a rule of a space is a module")
TOO_MANY_STEPS = Problem("E0532", "the expansion takes more than {most} steps")
TOO_MANY_LINES = Problem("E0532", "the trace has more than {most} lines")
TOO_DEEP = Problem("E0532", "calls and blocks are nested more than {most} deep here")
DEEP_LOOPS = Problem("E0532", "`{block}` stands in {count} loops; {most} are allowed")
LONELY_YIELD = Problem("E0533", "`yield` stands in a `for`")
LONELY_SO_FAR = Problem("E0533", "`so_far()` stands in a `for`, whose list it is")
NO_PARTS = Problem("E0534", "only a list has parts; this is {found}")
OTHER_COUNT = Problem("E0535", "{names} names for a list of {count}", "the list has {count} elements")
NO_LIST = Problem("E0536", "`for` runs over a list; this is {found}")
NOT_CALLABLE = Problem("E0537", "only names can be called")
UNKNOWN_CALL = Problem("E0538", "there is no primitive, module or function `{name}`")
RECURSION = Problem("E0539", "module `{name}` reaches itself: {chain}", "modules cannot recurse")
MODULE_ARGUMENTS = Problem("E0540", "`{name}` {reason}", help="{usage}")
MISSING = Problem("E0541", "`{name}` needs `{parameter}`", help="{usage}")
STEP_ARGUMENTS = Problem("E0542", "`{name}`: {reason}", help="{usage}")
TWICE = Problem("E0542", "`{parameter}` of `{name}` is given twice")
ARGUMENT_KIND = Problem("E0543", "`{name}` takes {wanted} for `{parameter}`; this is {found}")
TAKEN_NAME = Problem(
    "E0546", "the compute calls {what} `{name}`: every schedule has that name already", help="give it another one"
)
MAP_ENTRY = Problem("E0547", "a map goes from numbers, strings or bools to their weights; this is {found}")

UNKNOWN_SPACE = Problem("E0551", "there is no space or schedule `{name}`")
NO_SPACE = Problem(
    "E0552",
    "nothing says how `{compute}` may be computed",
    "this task has no space",
    "write `schedule … for {compute}`, or `use std.cpu` for the library's space",
)
SEVERAL_SPACES = Problem(
    "E0553",
    "{count} ways to compute `{compute}`: {names}",
    "which one?",
    "say it: `task {task} = {compute}(…) with {first}`",
)
SEVERAL_SCHEDULES = Problem("E0554", "{file} has {count} for `{compute}`", help="it has {others}")
UNKNOWN_TARGET = Problem("E0555", "`{file}` has no target `{name}`")
WHICH_TARGET = Problem(
    "E0558", "space `{space}` is for targets of kind `{kind}`, and the file has {count}", "for which one?", "{known}"
)
UNKNOWN_DRAW = Problem("E0556", "`{task}` has no draw `{name}`")
NOT_USED = Problem(
    "E0559",
    "no step of `{schedule}` depends on the draw `{name}`",
    "it could be anything",
    help="a schedule keeps the branch that was taken: search the space again, `--condition {name}=…` without `--replay`",
)
BAD_VALUE = Problem(
    "E0557", "`{text}` is no value of a draw", help='write it as after `:=`: 8, "text", true or [4, 16]'
)
