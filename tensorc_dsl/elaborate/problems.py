"""The findings of the compute layer, E0401–E0430: each declared once with its message and its repair."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tensorc_dsl.base.diagnostic import Diagnostic, help_note, problem

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


@problem("E0401", "`{compute}` has no dimension or attribute `{name}`")
def UNKNOWN_BINDING(*, compute: str, name: str) -> None: ...
@problem(
    "E0401", "`{name}` cannot be bound: `{compute}` computes it", help="leave `{name}` out; it follows from the others"
)
def COMPUTED_BINDING(*, name: str, compute: str) -> None: ...
@problem(
    "E0402", "`{name}` of `{compute}` has no value", "bound here", help="give it one: `{compute}({name}={example})`"
)
def MISSING_BINDING(*, name: str, compute: str, example: int | str) -> None: ...
@problem(
    "E0444",
    "`{compute}` is for sizes with `{text}`",
    "here {values}",
    help="choose sizes for which this holds",
)
def REFUSED_SIZES(*, compute: str, text: str, values: str) -> None: ...
@problem(
    "E0444",
    "it is not known for which open sizes `{text}` holds",
    help="compare sums and multiples of sizes, and their `/` and `%` by numbers, `M + 2*N <= 512`",
)
def NOT_LINEAR(*, text: str) -> None: ...
@problem(
    "E0444",
    "`{text}` is no condition on sizes",
    help="`where` compares sizes, `W >= 3, D % 2 == 0`, or names one, `H = N / 2`",
)
def NOT_A_CONDITION(*, text: str) -> None: ...
@problem(
    "E0445",
    "{text}",
    help="an input is assumed `positive_definite`, `symmetric`, `sorted`, `distinct`, `positive`, `finite`, or `in 0..9`",
)
def ASSUMED(*, text: str) -> None: ...
@problem("E0403", "`{name}` is {wanted}, but was given {value}", help="give `{name}` {wanted}")
def NOT_A_KIND(*, name: str, wanted: str, value: str) -> None: ...
@problem("E0403", "there is no type `{name}`")
def UNKNOWN_TYPE(*, name: str) -> None: ...
@problem("E0403", "there is no type `{name}` for an attribute")
def NO_ATTRIBUTE_TYPE(*, name: str) -> None: ...
@problem("E0404", "{what} is {value}: it must not be negative", "= {value}", help="{repair}")
def NEGATIVE(*, what: str, value: int, repair: str) -> None: ...
@problem(
    "E0404", "{what} may be negative", "negative for {sizes}", help="let the open dimension begin at a larger size"
)
def NEGATIVE_SIZE(*, what: str, sizes: str) -> None: ...
@problem(
    "E0404",
    "the reduction over `{index}` may have no steps: its extent is `{extent}`",
    "none for {sizes}",
    help="let the open dimension begin at a larger size",
)
def EMPTY_REDUCTION(*, index: str, extent: str, sizes: str) -> None: ...
@problem("E0404", "{what} is {value}: more than a 64-bit machine can index", "= {value}", "choose smaller sizes")
def TOO_LARGE(*, what: str, value: float | int) -> None: ...
@problem("E0404", "`{text}` may not fit in 64 bits", "too large for some values", help="{repair}")
def TOO_FAR(*, text: str, repair: str) -> None: ...
@problem("E0405", "there is no {what} `{name}` here")
def UNKNOWN_NAME(*, what: str, name: str) -> None: ...
@problem(
    "E0405",
    "the range of `{index}` cannot depend on the index `{name}`",
    "an index, not a size",
    help="let `{index}` range over all, and say where it counts: `… if {index} < {extent} else 0`, or what changes nothing",
)
def RANGE_OF_INDEX(*, index: str, name: str, extent: str) -> None: ...
@problem("E0405", "`{name}` is computed later", help="a stage reads inputs and the stages above it")
def TOO_EARLY(*, name: str) -> None: ...
@problem("E0406", "`{name}` is already {what}", help="give this one a name of its own")
def TAKEN(*, name: str, what: str) -> None: ...
@problem(
    "E0407",
    "the range of index `{name}` cannot be inferred",
    "never a subscript by itself",
    help="write it: `{name} in <extent>`",
)
def NO_RANGE(*, name: str) -> None: ...
@problem(
    "E0408",
    "index `{name}` has two ranges: {first} and {second}",
    "{second} here",
    help="if reading a part is meant, write the range: `{name} in <extent>`",
)
def RANGES_DIFFER(*, name: str, first: str, second: str) -> None: ...
@problem(
    "E0408",
    "`{name}` runs over {second}, and dimension {position} of `{stage}` has {first}",
    "{second} here",
    help="a stage computes all of its elements: write `{name} in {first}`, and what the others are:"
    " `… if {name} < {second} else 0`",
)
def PART_OF_STAGE(*, name: str, stage: str, position: int, first: str, second: str) -> None: ...
@problem(
    "E0409", "`{name}` is {rank}-dimensional; subscripts given: {count}", help="write one subscript for each dimension"
)
def RANK(*, name: str, rank: int, count: int) -> None: ...
@problem("E0410", "output `{name}` is never computed", help="add a stage: `{name}[{indices}] = …` in the body")
def UNWRITTEN(*, name: str, indices: str) -> None: ...
@problem("E0410", "`{name}` is not an output of `{compute}`", help="an intermediate is written `let {name}[…] = …`")
def NOT_AN_OUTPUT(*, name: str, compute: str) -> None: ...
@problem(
    "E0411",
    "subscript {position} of `{name}` can be {value}, but the dimension is {extent}",
    "{value} when {values}",
    help="{repair}",
)
def OUT_OF_BOUNDS(*, position: int, name: str, value: int, extent: int, values: str, repair: str) -> None: ...
@problem(
    "E0412",
    "subscript {position} of `{name}` cannot be proven to stay inside its dimension of {extent}",
    "{interval}, as far as is known",
    help="in subscripts and the conditions around them, indices may be added, and multiplied or divided by sizes",
)
def UNPROVEN(*, position: int, name: str, extent: str, interval: str) -> None: ...
@problem(
    "E0412",
    "a subscript that the values of `{name}` decide may leave its dimension",
    "a value",
    help="say between which two it stays: `clamp({text}, {low}, {high})`",
)
def DATA_SUBSCRIPT(*, name: str, text: str, low: int, high: str) -> None: ...
@problem(
    "E0413",
    "an index is made of an integer; `{text}` is {found}",
    "{found}",
    help="convert it, and say between which two it stays: `{repair}`",
)
def CLAMPED(*, text: str, found: object, repair: str) -> None: ...
@problem("E0413", "`{op}` mixes {lhs} and {rhs}", "{lhs} {op} {rhs}", help="convert one: `{cast}`")
def MIXED_TYPES(*, op: str, lhs: object, rhs: object, cast: str) -> None: ...
@problem("E0413", "an index is not a value of type {dtype}", "an index", help="convert it: `{dtype}({text})`")
def INDEX_AS_VALUE(*, dtype: object, text: str) -> None: ...
@problem("E0413", "an index is not a value", "an index", help="convert it to the type of the value: `i32({text})`")
def INDEX_ALONE(*, text: str) -> None: ...
@problem("E0413", "{what} is {found}, but {dtype} is needed", "{found}", help="convert it: `{dtype}({text})`")
def WRONG_TYPE(*, what: str, found: object, dtype: object, text: str) -> None: ...
@problem("E0413", "{what} is {found}, not a condition", help="compare it: `{repair}`")
def NOT_BOOL(*, what: str, found: object, repair: str) -> None: ...
@problem("E0413", "`bool` is not a conversion", help="compare instead: `{repair}`")
def NO_BOOL_CAST(*, repair: str) -> None: ...
@problem("E0413", "`{op}` does not work on bool", help="use `and`, `or`, `not`, or convert with `f32(…)`")
def BOOL_ARITHMETIC(*, op: str) -> None: ...
@problem(
    "E0413",
    "`{op}` does not work on {dtype}: its values are stored and converted",
    help="convert them to a wider type, `f32(…)`, and the result back: `{dtype}(…)`",
)
def STORED_ONLY(*, op: str, dtype: object) -> None: ...
@problem(
    "E0414",
    "{value} does not fit type {dtype}",
    help="{dtype} holds {range}; convert what stands beside it, `{wider}(…)`",
)
def LITERAL(*, value: str, dtype: object, range: str, wider: str) -> None: ...
@problem("E0414", "nothing here says which type {value} has", help="write one: `{likely}({value})`")
def NO_TYPE(*, value: str, likely: str) -> None: ...
@problem(
    "E0405",
    "stage `{name}` reads itself",
    help="only a scan does, at earlier values of its index: `{name}[t, …] = scan[t] init … step {name}[t - 1, …]`",
)
def SELF_READ(*, name: str) -> None: ...
@problem("E0416", "there is no function `{name}`")
def UNKNOWN_FUNCTION(*, name: str) -> None: ...
@problem("E0416", "`{name}` takes {wanted}, but was given {count}", help="write {wanted}, without names")
def ARITY(*, name: str, wanted: str, count: int) -> None: ...
@problem("E0416", "`{name}` works on {kind}, not on {found}", help="convert first: `{repair}`")
def TAKES(*, name: str, kind: str, found: object, repair: str) -> None: ...
@problem("E0416", "`{name}` works on integers, not on {found}", help="write a whole number")
def TAKES_WHOLE(*, name: str, found: object) -> None: ...
@problem(
    "E0416",
    "`saturate` converts to an integer or a float of 8 bits, and `{text}` is neither",
    "another type",
    help="name the type first: `saturate(u8, {operand})`",
)
def SATURATES_TO(*, text: str, operand: str) -> None: ...
@problem("E0416", "`saturate` works on numbers, not on bool", help="convert it: `{dtype}({text})`")
def SATURATES(*, text: str, dtype: object) -> None: ...
@problem(
    "E0416",
    "`bitcast` reads a float as the unsigned integer of its width, or the reverse, and not {found} as `{text}`",
    help="name a type of the same width first: `bitcast(u32, f32(x))`, `bitcast(f32, u32(n))`",
)
def BITS_OF(*, text: str, found: object) -> None: ...
@problem("E0417", "this divides by {value}", "= {value}", help="bind or write a divisor from 1")
def DIVISION_BY_ZERO(*, value: int) -> None: ...
@problem(
    "E0418",
    "{what} cannot stand in a compute",
    help="a compute has names, numbers, elements `A[i]`, operations and calls",
)
def NOT_IN_COMPUTE(*, what: str) -> None: ...
@problem(
    "E0418",
    "{what} cannot stand in a compute",
    help="a size is the name of its dimension, `M` of `A: f32[M]`",
)
def SIZE_BY_SHAPE(*, what: str) -> None: ...
@problem("E0418", "{what} cannot stand in a compute", help="a function stands by itself: `{name}(…)`")
def OF_MODULE(*, what: str, name: str) -> None: ...
@problem(
    "E0418",
    "an element has all its subscripts in one pair of brackets",
    help="write `{name}[{subscripts}]`",
)
def CHAINED(*, name: str, subscripts: str) -> None: ...
@problem(
    "E0418",
    "{what} cannot stand in an extent or a subscript",
    help="these are whole numbers: indices, sizes, integers, and `+ - * / %`, `min`, `max`, `abs`, `clamp`, choices of them",
)
def NOT_AN_INDEX(*, what: str) -> None: ...
@problem("E0418", "`{name}` is a tensor", help="say which element: `{name}[{indices}]`")
def NO_INDEX_LIST(*, name: str, indices: str) -> None: ...
@problem("E0419", "`{reducer}` reduces {wanted}, not {found}", help="{repair}")
def NOT_REDUCIBLE(*, reducer: str, wanted: str, found: object, repair: str) -> None: ...
@problem(
    "E0404", "`{reducer}` over nothing: `{index}` has no values", help="of no values none is the least or greatest"
)
def NOTHING_TO_PICK(*, reducer: str, index: str) -> None: ...
@problem(
    "E0419",
    "{count} positions do not fit {dtype}",
    "{dtype} has {room}: its highest number stands for none",
    help="use a wider type: `i64`",
)
def NARROW_POSITION(*, count: int, dtype: object, room: int) -> None: ...


@problem("E0420", "`{reducer}` is not {law}", help="{repair}")
def NO_LAW(*, reducer: str, law: str, repair: str) -> None: ...
@problem("E0426", "it is not proved that `{reducer}` is {laws}", help="{repair}")
def UNPROVED_LAW(*, reducer: str, laws: str, repair: str) -> None: ...
@problem("E0427", "there is no law `{name}`", help="those of a reducer are `associative`, `commutative` and `identity`")
def UNKNOWN_LAW(*, name: str) -> None: ...
@problem("E0421", "{what} cannot stand in a reducer", help="it is an expression over `{a}` and `{b}` alone")
def NOT_A_REDUCER(*, what: str, a: str, b: str) -> None: ...
@problem("E0421", "the identity of `{reducer}` is not a number", help="write a literal, `inf` or `-inf`")
def NOT_CONSTANT(*, reducer: str) -> None: ...
@problem(
    "E0446",
    "the operands, the combination and the identity of `{reducer}` have {counts} values",
    help="give each as many: `reducer f((a, b), (c, d)) = (…, …) identity (…, …)`",
)
def UNEVEN_REDUCER(*, reducer: str, counts: str) -> None: ...
@problem("E0448", "`{reducer}` combines {wanted}, and {found}", help="{repair}")
def NOT_SO_MANY(*, reducer: str, wanted: str, found: str, repair: str) -> None: ...
@problem(
    "E0448",
    "there are {count} places, and this is one value",
    help="several values are those of a reduction alone: `(a[i], b[i]) = reduce best[k] (…, …)`",
)
def ONE_VALUE(*, count: int) -> None: ...


@problem("E0422", "a scan is all of a stage", help="give it a stage of its own: `let S[{index}, …] = scan[{index}] …`")
def SCAN_PLACE(*, index: str) -> None: ...
@problem(
    "E0422",
    "`{index}` is not an index of stage `{stage}`",
    help="write `{stage}[{index}, …]`, or scan along an index that it has",
)
def SCAN_INDEX(*, index: str, stage: str) -> None: ...
@problem(
    "E0422",
    "the step of this scan never reads `{stage}`",
    help="then no step needs the one before it: leave `scan` out",
)
def SCAN_STEP(*, stage: str) -> None: ...
@problem("E0422", "`init` reads `{stage}`, which starts with it", help="let `init` read other tensors")
def SCAN_INIT(*, stage: str) -> None: ...
@problem(
    "E0422",
    "a step reads `{stage}` where it is not known yet",
    "{found}",
    help="subscript {position} of `{stage}` is `{index} - 1`, `{index} - 2`, … in the step; or `{index} + 1`, …, to run back",
)
def SCAN_LAG(*, stage: str, found: str, position: int, index: str) -> None: ...
@problem(
    "E0422",
    "a step reads `{stage}` on both sides of itself",
    "{found}",
    help="let subscript {position} of `{stage}` be below `{index}` wherever the step reads it, or above it",
)
def SCAN_BOTH(*, stage: str, found: str, position: int, index: str) -> None: ...


STEPS_TOGETHER = help_note(
    "scans that read each other are one, with an index for the value: "
    "`S[t, v in 2, …] = scan[t] init … step (… if v == 0 else …)`"
)
SCAN_BEGINS = help_note("`init` gives the first element alone; a step that looks further back needs a condition")


@problem("E0423", "an argument of `{compute}` is a tensor", help="compute it first: `let t[…] = {text}`")
def CALLED_WITH_EXPRESSION(*, compute: str, text: str) -> None: ...
@problem("E0423", "`{compute}` takes {wanted}; given: {count}", help="{usage}")
def ARGUMENT_COUNT(*, compute: str, wanted: str, count: int, usage: str) -> None: ...
@problem("E0423", "`{param}` of `{compute}` holds {wanted}, and `{text}` holds {found}", "{found}", help="{repair}")
def ARGUMENT_TYPE(*, param: str, compute: str, wanted: object, text: str, found: object, repair: str) -> None: ...
@problem(
    "E0423",
    "`{param}` of `{compute}` is {wanted}-dimensional, `{text}` is {found}-dimensional",
    help="pass a tensor of {wanted} dimensions: `let t[…] = {text}[…]`",
)
def CALLED_WITH_RANK(*, param: str, compute: str, wanted: int, text: str, found: int) -> None: ...
@problem(
    "E0423",
    "dimension {position} of `{param}` is `{wanted}` in `{compute}`, here {expected}; `{text}` has {found}",
    help="pass a tensor that has {expected} there, or let the others have {found}",
)
def ARGUMENT_SHAPE(
    *, position: int, param: str, wanted: str, compute: str, expected: str, text: str, found: str
) -> None: ...
@problem(
    "E0423",
    "`{name}` of `{compute}` does not follow from its arguments",
    help="give it: `{compute}(…, {name}=…)`",
)
def NOT_BOUND(*, name: str, compute: str) -> None: ...
@problem("E0423", "`{name}` of `{compute}` follows from its arguments", help="leave it out")
def NOT_GIVEN(*, name: str, compute: str) -> None: ...
@problem("E0423", "`{compute}` has {count} outputs, each with a place of its own", help="write `{repair}`")
def SEVERAL_OUTPUTS(*, compute: str, count: int, repair: str) -> None: ...
@problem(
    "E0423",
    "the output is `{wanted}`, and `{compute}` makes `{found}`",
    "{found}",
    "declare the output as `{found}`, or take it in a stage of its own: `let t = {compute}(…)`",
)
def RESULT(*, wanted: str, compute: str, found: str) -> None: ...
@problem(
    "E0450",
    "`view` is the whole value of a `let`, of one element of a tensor by its subscripts",
    help="write `let V[i, j] = view(A[j, 2 * i + 1])`",
)
def MISPLACED_VIEW() -> None: ...
@problem("E0424", "compute `{name}` calls itself: {chain}", help="computes cannot recurse")
def RECURSIVE(*, name: str, chain: str) -> None: ...
@problem("E0425", "this is more than {most} stages", help="call fewer computes, or write several tasks")
def TOO_MANY_STAGES(*, most: int) -> None: ...
@problem(
    "E0425",
    "computes call each other more than {most} deep",
    help="call fewer computes, one in the other, or write several tasks",
)
def CALLS_TOO_DEEP(*, most: int) -> None: ...
@problem(
    "E0442",
    "the choices between indices here make {count} cases, and may make {most}",
    help="write the choice of a value in their place, or a stage for a part of them: `let t[i] = A[…] if … else A[…]`",
)
def TOO_MANY_CASES(*, count: int | str, most: int) -> None: ...
@problem(
    "E0443",
    "the value of `{name}` is {found}",
    help="name parts of it, as stages of their own: `let t[i] = …`",
)
def LONG_VALUE(*, name: str, found: str) -> None: ...
@problem(
    "E0443", "`{name}` is {found}", help="it has what it is made of several times; put fewer of them in each other"
)
def LONG_INDEX(*, name: str, found: str) -> None: ...
@problem(
    "E0430", "`{name}` runs over {count} indices, and a stage over at most {most}", help="write some of them as one"
)
def TOO_MANY_LOOPS(*, name: str, count: int, most: int) -> None: ...
@problem(
    "E0429", "output `{name}` cannot be constant: each call computes it", help="leave `const` out; inputs may have it"
)
def CONSTANT_OUTPUT(*, name: str) -> None: ...
@problem(
    "E0428",
    'stage `{stage}` cannot carry the annotation "{key}": it says how a block combines values',
    help="choose another key; how values are combined is said by the reduction",
)
def RESERVED(*, stage: str, key: str) -> None: ...
@problem(
    "E0440",
    "`{name}` has {rank} dimensions, and {count} strides",
    help="write one stride for each dimension, in elements: `A: f32[M, K] strides [S, 1]`",
)
def STRIDES_RANK(*, name: str, rank: int, count: int) -> None: ...
@problem(
    "E0440",
    "{reason}",
    "an output needs a place for each element",
    help="let each stride be at least what the closer dimensions span: `C: f32[M, N] strides [S, 1]` with S of N or more",
)
def SHARED_PLACES(*, reason: str) -> None: ...
@problem(
    "E0441",
    "an output cannot update this input: {reason}",
    help="name an input of the same type, shape and strides, which no other output updates: `-> Z: f32[N] updates Y`",
)
def NO_UPDATE(*, reason: str) -> None: ...
