"""The findings of the compute layer, E0401–E0430: each declared once with its message and its repair."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from tensorc_dsl.diagnostic import Diagnostic, Note, Problem, help_note
from tensorc_dsl.syntax.names import listed, nearest

T = TypeVar("T")


class Invalid(Exception):
    """Ends the work on one stage or binding with its findings; without any if the cause is already reported."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__(*diagnostics)
        self.diagnostics = diagnostics


def each(*works: Callable[[], T]) -> tuple[T, ...]:
    """The results of all works. Raises Invalid with the findings of all of them if one fails."""
    done: list[T] = []
    found: list[Diagnostic] = []
    failed = False
    for work in works:
        try:
            done.append(work())
        except Invalid as e:
            failed = True
            found += [d for d in e.diagnostics if d not in found]
    if failed:
        raise Invalid(*found)
    return tuple(done)


def suggestion(name: str, candidates: Iterable[str]) -> tuple[Note, ...]:
    """A "did you mean" line if some candidate is similar to `name`, else the list of all candidates."""
    close, known = nearest(name, candidates)
    if close:
        return (help_note(f"did you mean `{close}`?"),)
    return (help_note(f"there are: {listed(known)}"),) if known else ()


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
NEGATIVE_SIZE = Problem(
    "E0404", "{what} may be negative", "negative for {sizes}", help="let the open dimension begin at a larger size"
)
EMPTY_REDUCTION = Problem(
    "E0404",
    "the reduction over `{index}` may have no steps: its extent is `{extent}`",
    "none for {sizes}",
    help="let the open dimension begin at a larger size",
)
TOO_LARGE = Problem("E0404", "{what} is {value}: more than a 64-bit machine can index", "= {value}")
TOO_FAR = Problem(
    "E0404", "`{text}` may be more than 64 bits leave room for", "too large for some values", help="{repair}"
)
UNKNOWN_NAME = Problem("E0405", "there is no {what} `{name}` here")
RANGE_OF_INDEX = Problem(
    "E0405",
    "the range of `{index}` cannot depend on the index `{name}`",
    "an index, not a size",
    help="let `{index}` range over all, and say where it counts: `… if {index} < {extent} else 0`, or what changes nothing",
)
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
RANK = Problem("E0409", "`{name}` is {rank}-dimensional; subscripts given: {count}")
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
DATA_SUBSCRIPT = Problem(
    "E0412",
    "a subscript that the values of `{name}` decide can be any number",
    "a value",
    help="say between which two it stays: `clamp({text}, {low}, {high})`",
)
CLAMPED = Problem(
    "E0413",
    "`clamp` makes an index of an integer; `{text}` is {found}",
    "{found}",
    help="convert it: `clamp(i32({text}), …)`",
)
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
SELF_READ = Problem(
    "E0405",
    "stage `{name}` reads itself",
    help="only a scan does, at earlier values of its index: `{name}[t, …] = scan[t] init … step {name}[t - 1, …]`",
)
UNKNOWN_FUNCTION = Problem("E0416", "there is no function `{name}`")
ARITY = Problem("E0416", "`{name}` takes {wanted}, but was given {count}")
NEEDS_FLOAT = Problem("E0416", "`{name}` works on floats, not on {found}", help="convert first: `{name}(f32({text}))`")
DIVISION_BY_ZERO = Problem("E0417", "this divides by {value}", "= {value}")
NOT_IN_COMPUTE = Problem("E0418", "{what} cannot stand in a compute")
NOT_AN_INDEX = Problem("E0418", "{what} cannot stand in an extent or a subscript")
NO_INDEX_LIST = Problem("E0418", "`{name}` is a tensor", help="say which element: `{name}[{indices}]`")
NOT_REDUCIBLE = Problem("E0419", "`{reducer}` reduces {wanted}, not {found}", help="{repair}")
NOTHING_TO_PICK = Problem(
    "E0404", "`{reducer}` over nothing: `{index}` has no values", help="of no values none is the least or greatest"
)
NARROW_POSITION = Problem(
    "E0419", "positions up to {last} do not fit {dtype}", "{count} values here", help="use a wider type: `i64`"
)

NO_LAW = Problem("E0420", "`{reducer}` is not {law}", help="{repair}")
UNPROVED_LAW = Problem("E0426", "it is not proved that `{reducer}` is {laws}", help="{repair}")
UNKNOWN_LAW = Problem(
    "E0427", "there is no law `{name}`", help="those of a reducer are `associative`, `commutative` and `identity`"
)
NOT_A_REDUCER = Problem(
    "E0421", "{what} cannot stand in a reducer", help="it is an expression over `{a}` and `{b}` alone"
)
NOT_CONSTANT = Problem("E0421", "the identity of `{reducer}` is not a number", help="write a literal, `inf` or `-inf`")

SCAN_PLACE = Problem(
    "E0422", "a scan is all of a stage", help="give it a stage of its own: `let S[{index}, …] = scan[{index}] …`"
)
SCAN_INDEX = Problem("E0422", "`{index}` is not an index of stage `{stage}`")
SCAN_STEP = Problem(
    "E0422",
    "the step of this scan never reads `{stage}`",
    help="then no step needs the one before it: leave `scan` out",
)
SCAN_INIT = Problem("E0422", "`init` reads `{stage}`, which starts with it", help="let `init` read other tensors")
SCAN_LAG = Problem(
    "E0422",
    "a step reads `{stage}` where it is not known yet",
    "{found}",
    help="subscript {position} of `{stage}` is `{index} - 1`, `{index} - 2`, … in the step",
)
SCAN_BEGINS = help_note("`init` gives the first element alone; a step that looks further back needs a condition")
ARGUMENT = Problem("E0423", "an argument of `{compute}` is a tensor", help="compute it first: `let t[…] = {text}`")
ARGUMENT_COUNT = Problem("E0423", "`{compute}` takes {wanted}; given: {count}", help="{usage}")
ARGUMENT_TYPE = Problem(
    "E0423", "`{param}` of `{compute}` holds {wanted}, and `{text}` holds {found}", "{found}", help="{repair}"
)
ARGUMENT_RANK = Problem("E0423", "`{param}` of `{compute}` is {wanted}-dimensional, `{text}` is {found}-dimensional")
ARGUMENT_SHAPE = Problem(
    "E0423", "dimension {position} of `{param}` is `{wanted}` in `{compute}`, here {expected}; `{text}` has {found}"
)
NOT_BOUND = Problem(
    "E0423",
    "`{name}` of `{compute}` does not follow from its arguments",
    help="give it: `{compute}(…, {name}=…)`",
)
NOT_GIVEN = Problem("E0423", "`{name}` of `{compute}` follows from its arguments", help="leave it out")
SEVERAL_OUTPUTS = Problem(
    "E0423", "`{compute}` has {count} outputs; a call has one value", help="call computes with one output"
)
RESULT = Problem("E0423", "the output is `{wanted}`, and `{compute}` makes `{found}`", "{found}")
RECURSIVE = Problem("E0424", "compute `{name}` calls itself: {chain}", help="computes cannot recurse")
TOO_MANY_STAGES = Problem(
    "E0425", "this is more than {most} stages", help="call fewer computes, or write several tasks"
)
TOO_MANY_LOOPS = Problem(
    "E0430", "`{name}` runs over {count} indices, and a stage over at most {most}", help="write some of them as one"
)
CONSTANT_OUTPUT = Problem(
    "E0429", "output `{name}` cannot be constant: each call computes it", help="leave `const` out; inputs may have it"
)
RESERVED = Problem(
    "E0428",
    'stage `{stage}` cannot carry the annotation "{key}": it says how a block combines values',
    help="choose another key; how values are combined is said by the reduction",
)
