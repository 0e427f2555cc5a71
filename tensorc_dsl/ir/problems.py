"""The findings about programs and instructions as text, E0201–E0212 and E0670–E0673: each with its message and its repair."""

from __future__ import annotations

from tensorc_dsl.base.diagnostic import problem
from tensorc_dsl.ir.dtypes import DType


@problem("E0201", "`{name}` is a buffer", help="say which element: `{name}[{subscripts}]`")
def IS_BUFFER(*, name: str, subscripts: str) -> None: ...
@problem("E0201", "`{name}` cannot be used here", help="{reason}")
def HIDDEN(*, name: str, reason: str) -> None: ...
@problem("E0201", "there is no `{name}` here")
def UNKNOWN_NAME(*, name: str) -> None: ...
@problem("E0201", "there is no buffer `{name}`")
def UNKNOWN_BUFFER(*, name: str) -> None: ...
@problem("E0201", "no shape of an argument mentions `{name}`")
def NO_DIMENSION(*, name: str) -> None: ...
@problem("E0202", "the sizes of `{name}` are given twice", "the second time", help="leave one of the two out")
def SIZES_TWICE(*, name: str) -> None: ...
@problem("E0202", "there are two buffers `{name}`", "the second one", help="give one of them another name")
def TWO_BUFFERS(*, name: str) -> None: ...
@problem("E0202", "loop `{name}` stands inside a loop of that name", help="give one of them another name")
def LOOP_IN_LOOP(*, name: str) -> None: ...
@problem("E0202", "loop `{name}` has the name of {what}", help="give one of them another name")
def LOOP_TAKEN(*, name: str, what: str) -> None: ...
@problem("E0202", "block `{name}` has the name of another {what}", help="give one of them another name")
def BLOCK_TAKEN(*, name: str, what: str) -> None: ...
@problem("E0202", "there are two iterators `{name}` in this block", "the second one", "give one of them another name")
def TWO_ITERATORS(*, name: str) -> None: ...
@problem("E0202", "iterator `{name}` has the name of a loop around it", help="give it another name: `v{name}`")
def ITERATOR_TAKEN(*, name: str) -> None: ...
@problem("E0202", 'the annotation "{key}" is given twice', help="leave one of the two out")
def ANNOTATION_TWICE(*, key: str) -> None: ...
@problem("E0203", "`{name}` has {rank}; subscripts given: {count}", help="write one subscript for each dimension")
def RANK(*, name: str, rank: str, count: int) -> None: ...
@problem("E0204", "{why}; this is {found}", "{found}", "{repair}")
def OTHER_TYPE(*, why: str, found: DType, repair: str) -> None: ...
@problem("E0204", "{why}; this is {found}", "{found}", "convert it: `{wanted}({value})`")
def CONVERTIBLE(*, why: str, found: DType, wanted: DType, value: str) -> None: ...
@problem(
    "E0204",
    "{what} are of two types, {left} and {right}",
    "{left} and {right}",
    "choose an index by the condition: `1 if … else 0`",
)
def TWO_TYPES(*, what: str, left: DType, right: DType) -> None: ...
@problem(
    "E0204", "{what} are of two types, {left} and {right}", "{left} and {right}", "convert one: `{wanted}({value})`"
)
def ONE_CONVERTIBLE(*, what: str, left: DType, right: DType, wanted: DType, value: str) -> None: ...
@problem("E0204", "`-` takes a number; this is bool", help="write `not …` for the opposite of a condition")
def NEGATED_BOOL() -> None: ...
@problem(
    "E0204",
    "`{op}` takes numbers; these are bool",
    help="join conditions with `and` and `or`, or choose numbers by them: `1.0 if … else 0.0`",
)
def BOOL_OPERANDS(*, op: str) -> None: ...
@problem(
    "E0204",
    "`{op}` does not work on {found}: its values are stored and converted",
    "{found}",
    "convert it to a wider type: `f32(…)`",
)
def STORED_OPERANDS(*, op: str, found: DType) -> None: ...
@problem("E0204", "`xor` takes integers; these are {found}", help="convert them: `xor(i32(…), i32(…))`")
def XOR_OPERANDS(*, found: DType) -> None: ...
@problem("E0204", "`{name}` takes floats of one type; this is {found}", "{found}", "convert it: `{name}(f32(…))`")
def FLOAT_ARGUMENTS(*, name: str, found: DType) -> None: ...
@problem("E0204", "`{name}` takes integers of one type; this is {found}", "{found}", "convert it: `{name}(i32(…))`")
def INTEGER_ARGUMENTS(*, name: str, found: DType) -> None: ...
@problem(
    "E0204",
    "`bitcast` reads a float as the unsigned integer of its width, or the reverse; this is {found}",
    "{found}",
    "write the type first, `bitcast(u32, x)`, and convert `x` to one of its width",
)
def BITS_OF(*, found: str) -> None: ...
@problem("E0204", "an index is made of an integer; this is {found}", "{found}", "round it first: `index(i32(…))`")
def INDEX_OF_FLOAT(*, found: DType) -> None: ...
@problem("E0205", "nothing here says which type this number has", help="write one: `f32({value})`")
def NO_TYPE(*, value: float) -> None: ...
@problem("E0205", "{dtype} does not hold {value}", "{limit}", "write a number that it holds, or another type")
def NOT_HELD(*, dtype: DType, value: int | float, limit: str) -> None: ...
@problem("E0205", "a number is no bool", help="write `true` or `false`")
def NO_BOOL() -> None: ...
@problem("E0206", "there is no function `{name}`")
def UNKNOWN_FUNCTION(*, name: str) -> None: ...
@problem("E0206", "`{name}` takes {wanted}; given: {count}", help="write {wanted}, without names")
def ARGUMENTS(*, name: str, wanted: str, count: int) -> None: ...
@problem(
    "E0207",
    "this cannot stand in a program",
    help="a program is made of elements, iterators, numbers, operators and functions: expand this to these",
)
def NOT_IN_PROGRAM() -> None: ...
@problem("E0207", "only a buffer has subscripts", help="a size is written as a number")
def SUBSCRIPTED() -> None: ...
@problem("E0208", "there is no type `{name}`")
def UNKNOWN_TYPE(*, name: str) -> None: ...
@problem(
    "E0209",
    "an annotation is a number, a string or a bool",
    help="write one value; a choice between several is a draw of a schedule",
)
def NO_LITERAL() -> None: ...
@problem("E0210", "there is no program in this text", help="write one: `program name(A: f32[8]) {{ … }}`")
def NO_PROGRAM() -> None: ...
@problem("E0210", "one program is expected here", "another item", help="leave the other item out")
def ONE_PROGRAM() -> None: ...
@problem("E0210", "a program is expected here", help="write one: `program name(A: f32[8]) {{ … }}`")
def OTHER_ITEM() -> None: ...
@problem("E0210", "{reason}")
def NOT_WELL_FORMED(*, reason: str) -> None: ...
@problem(
    "E0210", "`{name}` has no sizes", "from a number up to a larger one", "write a range, such as `{name} in 1..64`"
)
def NO_SIZES(*, name: str) -> None: ...
@problem("E0210", "no size to be timed at", "a number is expected", "write numbers of the range: `at [1, 16]`")
def NOT_TIMED() -> None: ...
@problem("E0210", "loop `{name}` has no body", help="write a block in it, or remove the loop")
def NO_BODY(*, name: str) -> None: ...
@problem("E0210", "block `{name}` stores nothing", help="write a store, `B[…] = …`, or remove the block")
def NO_STORE(*, name: str) -> None: ...
@problem("E0210", 'there is no axis "{name}"', "a loop is bound to one that a GPU has")
def UNKNOWN_AXIS(*, name: str) -> None: ...
@problem(
    "E0211",
    "only plain loops share a header",
    "a loop of its own is needed",
    "write `for {name} in … {{` inside",
)
def SHARED_HEADER(*, name: str) -> None: ...
@problem("E0212", "data read from `{buffer}` cannot decide this", "depends on data", "{repair}")
def DEPENDS_ON_DATA(*, buffer: str, repair: str) -> None: ...


@problem("E0670", "there are two operands `{name}`", "the second one", "give one of them another name")
def TWO_OPERANDS(*, name: str) -> None: ...
@problem("E0670", "operand `{name}` holds no numbers", "`{dtype}`")
def NO_NUMBERS(*, name: str, dtype: str) -> None: ...
@problem(
    "E0670",
    "the shape of operand `{name}` is not fixed",
    help="an instruction has one size: positive numbers, up to {most} elements",
)
def OPEN_SHAPE(*, name: str, most: int) -> None: ...
@problem("E0671", "an instruction has one effect", "the second one", "declare two instructions")
def TWO_EFFECTS() -> None: ...
@problem("E0671", "there is no operand `{name}`")
def UNKNOWN_OPERAND(*, name: str) -> None: ...
@problem(
    "E0671",
    "an instruction accumulates sums, onto what is there",
    help="write `{name}[…] += sum[…] …`; a nest whose initialisation stands apart (`decompose_reduction`) has that form",
)
def NO_SUM(*, name: str) -> None: ...
@problem("E0671", "the index `{name}` stands here twice", help="write each index once")
def INDEX_TWICE(*, name: str) -> None: ...
@problem("E0671", "`{name}` has a range already", help="indices run over the dimensions of the operands")
def HAS_RANGE(*, name: str) -> None: ...
@problem("E0671", "the index `{name}` has the name of an operand", help="give the index another name")
def INDEX_TAKEN(*, name: str) -> None: ...
@problem(
    "E0671",
    "`{name}` is read at another position than it is stored",
    help="read `{name}` with the subscripts of the store, or read another operand",
)
def OTHER_PLACE(*, name: str) -> None: ...
@problem("E0671", "an index is used as a number", help="indices only say which elements take part")
def INDEX_AS_NUMBER() -> None: ...
@problem(
    "E0671", "no operand has the index `{name}`", help="remove the index, or write it as a subscript of an operand"
)
def INDEX_OF_NONE(*, name: str) -> None: ...
@problem(
    "E0671",
    "the subscripts of `{name}` are not indices, each once",
    help="an operand is a tile whose elements lie at fixed steps: `A[i, k]`",
)
def NO_INDICES(*, name: str) -> None: ...
@problem(
    "E0671",
    "`{name}` runs over dimensions of {extent} and of {other}",
    help="use two indices, or give the dimensions one size",
)
def TWO_EXTENTS(*, name: str, extent: int, other: int) -> None: ...
@problem("E0672", 'there are two layouts "{name}"', "the second one", "leave one of the two out, or rename it")
def TWO_LAYOUTS(*, name: str) -> None: ...
@problem("E0672", 'there is no layout "{name}"')
def UNKNOWN_LAYOUT(*, name: str) -> None: ...
@problem(
    "E0672",
    'layout "{layout}" maps {count} indices; `{name}` has {rank}',
    help="write one parameter of the layout for each dimension of `{name}`",
)
def LAYOUT_RANK(*, layout: str, count: int, name: str, rank: int) -> None: ...
@problem(
    "E0672",
    'layout "{layout}" puts {one} and {other} of `{name}` in one place',
    "{place}",
    "every element needs a place of its own",
)
def COLLISION(*, layout: str, one: tuple[int, ...], other: tuple[int, ...], name: str, place: str) -> None: ...
@problem(
    "E0672",
    'layout "{layout}" does not say where lanes reach each element of `{name}`',
    help="for lanes 0 to {last} it goes from the lane and the number of an element behind an address to subscripts: "
    '`layout "{layout}" (lane, element) -> ({places})`; with several addresses a lane, `(lane, address, element)`',
)
def NOT_REACHED(*, layout: str, name: str, last: int, places: str) -> None: ...
@problem("E0673", "there are no targets of kind `{kind}`")
def UNKNOWN_KIND(*, kind: str) -> None: ...
@problem("E0673", "`{form}` is no code for {target}", help="write {forms}")
def OTHER_FORM(*, form: str, target: str, forms: str) -> None: ...
@problem(
    "E0673",
    "this is no call of a function of LLVM",
    help="write its type, its name and its arguments, as LLVM does: "
    '"<16 x i32> llvm.x86.avx512.vpdpbusd.512(<16 x i32> C, <16 x i32> A, <16 x i32> B)"',
)
def NO_CALL() -> None: ...
@problem("E0673", "there is no operand `{name}`")
def UNKNOWN_ARGUMENT(*, name: str) -> None: ...
@problem(
    "E0673", "the call does not take `{name}`", help="an argument is needed for each operand that the effect reads"
)
def NOT_PASSED(*, name: str) -> None: ...
@problem(
    "E0673",
    "`{name}` has {bits} bits; {type} has {other}",
    help="a vector holds the elements of an operand in order, the last dimension fastest",
)
def OTHER_SIZE(*, name: str, bits: int, type: str, other: int) -> None: ...
@problem(
    "E0250", "`{text}` is no size of a case", help="write a number, a range such as `2..16`, or `_` for all other sizes"
)
def CASE_SIZES(*, text: str) -> None: ...
@problem("E0250", "a case has sizes of {names}; this one has {count}", help="write {wanted} with sizes in these places")
def CASE_COUNT(*, count: int, names: str, wanted: str) -> None: ...
@problem(
    "E0254",
    "`{text}` does not say how often sizes occur: {why}",
    help="write a map, or the name of a constant that is one: `M=1..512 like {{1: 500, 16: 300, 128: 20}}`",
)
def NO_COUNTS(*, text: str, why: str) -> None: ...
