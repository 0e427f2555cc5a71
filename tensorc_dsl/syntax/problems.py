"""The findings of the parser, E0101–E0119: each declared once with its message and its repair."""

from __future__ import annotations

from tensorc_dsl.base.diagnostic import problem


@problem("E0101", "expected {wanted}; found {found}")
def UNEXPECTED(*, wanted: str, found: str) -> None: ...
@problem("E0102", "{character} has no meaning here")
def NO_MEANING(*, character: str) -> None: ...
@problem("E0103", "this `{closer}` closes nothing", help="leave it out, or write the bracket that it closes")
def CLOSES_NOTHING(*, closer: str) -> None: ...
@problem("E0103", "expected `{wanted}`; found `{closer}`")
def OTHER_BRACKET(*, wanted: str, closer: str) -> None: ...
@problem(
    "E0104",
    "this string does not end on its line",
    'no closing `"`',
    'write `\\n` for a line end inside a string, `\\"` for a quote',
)
def OPEN_STRING() -> None: ...
@problem("E0105", "`{escape}` is no character", help='write \\" \\\\ \\n \\t \\r or \\u{{HEX}}')
def NO_ESCAPE(*, escape: str) -> None: ...
@problem("E0106", "this number needs more than {most} bits", help="write a shorter one, or a float such as `1e30`")
def TOO_MANY_BITS(*, most: int) -> None: ...
@problem("E0106", "this number is larger than any f64", help="write `inf` for infinity")
def TOO_LARGE() -> None: ...
@problem(
    "E0107",
    "this is nested more than {most} levels deep",
    help="name parts of it with `let`, or write it as several statements",
)
def TOO_DEEP(*, most: int) -> None: ...
@problem(
    "E0107",
    "this chain of operators has more than {most} terms",
    help="name parts of it with `let`, as stages of the compute, or write a reduction: `sum[k] …`",
)
def TOO_LONG(*, most: int) -> None: ...
@problem(
    "E0108",
    "an argument without a name follows one with a name",
    help="name it too, or put it in front of the others",
)
def NAMELESS_ARGUMENT() -> None: ...
@problem(
    "E0109",
    "parentheses around several values are only the parameters of an index map",
    "no `->` follows",
    "write `[a, b]` for a list, `(i, j) -> (j, i)` for an index map",
)
def SEVERAL_VALUES() -> None: ...
@problem(
    "E0110",
    "the expression after `~` is not a distribution",
    help="write `let x ~ sample_categorical([…])`, or `let x = …` for a value",
)
def NO_DISTRIBUTION() -> None: ...
@problem(
    "E0111",
    "a rule of a space is a module's name, or a call of it",
    help="name a module; what the rule does is written there",
)
def NO_RULE() -> None: ...
@problem("E0112", "this comment describes no item", help="`///` stands above an item; write `//` for other comments")
def DESCRIBES_NOTHING() -> None: ...
@problem("E0113", "a parameter of an index map is a name", help="write `(i, j) -> (…)`")
def NO_PARAMETER() -> None: ...
@problem("E0114", "a block has one `init`", "the second one", help="leave one of the two out")
def TWO_INITS() -> None: ...
@problem(
    "E0115",
    "a loop cannot stand in a block",
    help="put the loop around the block, and bind an iterator to it: "
    "`for {name} in {extent} {{ block … {{ spatial v{name} in {extent} = {name}; … }} }}`",
)
def LOOP_IN_BLOCK(*, name: str, extent: str) -> None: ...
@problem("E0116", "there is nothing in these brackets", help="a single value is its name alone: `{name}`")
def NO_SUBSCRIPTS(*, name: str) -> None: ...
@problem(
    "E0117",
    "a slice has a start and an end, and no step",
    help="`reversed(…)` turns a list around; `for` over a `range` picks its elements",
)
def STEPPED() -> None: ...
@problem(
    "E0118",
    "`...` stands twice on one side of an index map",
    help="it stands once on the left, and once on the right for the same indices: `(..., k, j) -> (..., j, k)`",
)
def REST_TWICE() -> None: ...
@problem(
    "E0118",
    "`...` is missing on this side of the index map",
    help="it stands once on the left, and once on the right for the same indices: `(..., k, j) -> (..., j, k)`",
)
def REST_MISSING() -> None: ...
@problem(
    "E0119",
    "`{name}` is the name of another branch too",
    "the second one",
    "a decision is the name of a branch: give each a name of its own",
)
def SAME_BRANCH(*, name: str) -> None: ...
