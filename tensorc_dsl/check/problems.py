"""The findings of the schedule layer and of files, E0213–E0253 and W0201–W0206: each declared with message and repair."""

from __future__ import annotations

from tensorc_dsl.base.diagnostic import Note, problem
from tensorc_dsl.base.source import Span


def where(what: str, span: Span) -> Note:
    """A note that refers to another place: `= note: what: file:line:column`."""
    return Note("note", f"{what}: ", span)


@problem("E0220", "there is no `{name}` here")
def UNKNOWN_NAME(*, name: str) -> None: ...
@problem("E0220", "`{name}` is not bound on every way here", help="name it in every branch, or before them")
def PARTLY_BOUND(*, name: str) -> None: ...
@problem("E0221", "there are two {kind}s `{name}`", "the second one", help="give one of them another name")
def DUPLICATE_ITEM(*, kind: str, name: str) -> None: ...
@problem("E0222", "`{name}` is {what} already", help="give the {item} another name")
def TAKEN_NAME(*, name: str, what: str, item: str) -> None: ...
@problem("E0223", "there is no primitive, module or function `{name}`")
def UNKNOWN_CALL(*, name: str) -> None: ...
@problem("E0223", "there is no module or space `{name}`", help="a rule is a module or another space")
def UNKNOWN_RULE(*, name: str) -> None: ...
@problem("E0223", "only names and methods can be called", help="write `f(…)` or `x.f(…)`")
def NOT_CALLABLE() -> None: ...
@problem("E0223", "`{name}` is {kind}, and cannot be called", help="call a primitive, a module or a function")
def NOT_A_MODULE(*, name: str, kind: str) -> None: ...
@problem("E0224", "`{name}` takes {wanted}; given: {count}", help="{usage}")
def TOO_MANY(*, name: str, wanted: str, count: int, usage: str) -> None: ...
@problem("E0224", "space `{name}` takes no arguments", help="name it without parentheses: `{name}`")
def NO_SPACE_CALL(*, name: str) -> None: ...
@problem("E0224", "`{name}` has no parameter `{parameter}`")
def NO_PARAMETER(*, name: str, parameter: str) -> None: ...
@problem("E0224", "`{parameter}` of `{name}` is given twice", "the second time", help="{usage}")
def GIVEN_TWICE(*, parameter: str, name: str, usage: str) -> None: ...
@problem("E0224", "`{name}` needs {parameter}", help="{usage}")
def MISSING(*, name: str, parameter: str, usage: str) -> None: ...
@problem("E0225", "`{name}` is drawn with `~`", help="write `let x ~ {name}(…)`")
def DRAWN(*, name: str) -> None: ...
@problem("E0225", "`{name}` is no distribution")
def NO_DISTRIBUTION(*, name: str) -> None: ...
@problem("E0226", "{kind} has no `{name}`")
def NO_ATTRIBUTE(*, kind: str, name: str) -> None: ...
@problem("E0226", "nothing has an attribute `{name}`")
def UNKNOWN_ATTRIBUTE(*, name: str) -> None: ...
@problem("E0226", "there is no method `{name}`")
def UNKNOWN_METHOD(*, name: str) -> None: ...
@problem("E0226", "{kind} has no method `{name}`")
def NO_METHOD(*, kind: str, name: str) -> None: ...
@problem("E0226", "`{name}` of {kind} needs parentheses", help="{usage}")
def IS_METHOD(*, name: str, kind: str, usage: str) -> None: ...
@problem("E0226", "`{name}` of {kind} takes no parentheses", help="write `.{name}`")
def NOT_METHOD(*, name: str, kind: str) -> None: ...
@problem("E0227", "there is no compute `{name}`")
def UNKNOWN_COMPUTE(*, name: str) -> None: ...
@problem("E0227", "there is no schedule or space `{name}`")
def UNKNOWN_CHOICE(*, name: str) -> None: ...
@problem(
    "E0227",
    "schedule `{name}` is for `{compute}`, and this task computes `{wanted}`",
    help="name a schedule for `{wanted}` or a space, or let the task compute `{compute}`",
)
def OTHER_COMPUTE(*, name: str, compute: str, wanted: str) -> None: ...
@problem("E0227", "there is no target `{name}`")
def UNKNOWN_TARGET(*, name: str) -> None: ...
@problem(
    "E0227",
    "space `{name}` is for `{kind}`, and `{space}` for `{own}`",
    help="remove this rule, or write `space {space} for {kind}`",
)
def OTHER_KIND(*, name: str, kind: object, space: str, own: object) -> None: ...
@problem(
    "E0451",
    "`{name}` is a rule over {over}, and `{space}` is for `{target}`",
    help="a rule of such a space begins with a `{wanted}` or a `Program`",
)
def RULE_OF_OTHERS(*, name: str, over: str, space: str, target: str, wanted: str) -> None: ...
@problem("E0228", "module `{name}` reaches itself: {chain}", help="remove one of these calls: modules cannot recurse")
def RECURSION(*, name: str, chain: str) -> None: ...
@problem("E0228", "space `{name}` contains itself: {chain}", help="remove one of these rules")
def SPACE_IN_ITSELF(*, name: str, chain: str) -> None: ...
@problem(
    "E0229",
    "`{name}` must be bound to a number or a type",
    help="write the number, a range of sizes such as `1..4096`, or the name of a type",
)
def NOT_A_SIZE(*, name: str) -> None: ...
@problem(
    "E0229",
    "`{range}` is no range of sizes for `{name}`",
    help="write the smallest, 0 or more, and the largest: `{name}=1..4096`",
)
def NO_SIZES(*, range: str, name: str) -> None: ...
@problem(
    "E0247",
    "`{value}` is no size of `{name}`, a whole number from {low} to {high}",
    help="sizes to be timed at lie in the range before `at`",
)
def NOT_TIMED(*, value: str, name: str, low: int, high: int) -> None: ...
@problem(
    "E0247",
    "`{name}` is timed at {count} sizes, `{first}` at {wanted}",
    help="sizes are timed together, the first ones, then the second ones: give as many of each",
)
def TIMED_APART(*, name: str, count: int, first: str, wanted: int) -> None: ...
@problem("E0229", "`{name}` is bound twice", "the second time", "leave one of the two out")
def BOUND_TWICE(*, name: str) -> None: ...
@problem(
    "E0230",
    "{what} belongs to a compute, not to a schedule",
    help="make a list with `for … {{ yield … }}`, and call a function on it",
)
def IN_COMPUTE_ONLY(*, what: str) -> None: ...
@problem(
    "E0231", "`yield` stands in a `for`", help="put it into a `for`, or leave it out where the value is not needed"
)
def LONELY_YIELD() -> None: ...
@problem(
    "E0232",
    "`{path}` is not found",
    help="a `use` names a file or a folder of the project or of `std`, without `.tsched`",
)
def UNRESOLVED(*, path: str) -> None: ...
@problem("E0234", "`{path}` is found in several places", help="rename one, or leave its folder out of the search path")
def AMBIGUOUS(*, path: str) -> None: ...
@problem("E0233", "files use each other: {chain}", help="move what both need into a file of its own")
def CYCLE(*, chain: str) -> None: ...
@problem(
    "E0234", "{kind} `{name}` comes from two places", help="rename one, or import only what is needed: `use a.{{name}}`"
)
def TWO_SOURCES(*, kind: str, name: str) -> None: ...
@problem("E0235", "`{path}` has no `{name}`")
def NOT_IN_FILE(*, path: str, name: str) -> None: ...
@problem("E0236", "{kind} `{name}` stays in its file", help="import the compute and write a task for it")
def NOT_IMPORTED(*, kind: str, name: str) -> None: ...
@problem("E0237", "there is no type `{name}` for a parameter")
def UNKNOWN_TYPE(*, name: str) -> None: ...
@problem(
    "E0237",
    "`{name}` has no such types in parentheses",
    help="`Module(Block, Loop)` is applied to a block and a loop, `list(int)` has ints; other types have no parentheses",
)
def NO_SUCH_PARTS(*, name: str) -> None: ...
@problem("E0238", "there are two parameters `{name}`", "the second one", help="give one of them another name")
def SAME_PARAMETER(*, name: str) -> None: ...
@problem("E0238", "rules of space `{name}` stand in this space already", help="name it once")
def RULES_TWICE(*, name: str) -> None: ...
@problem(
    "E0246",
    "this space has more than {most} rules, with those of the spaces in it",
    help="leave out what is not needed",
)
def TOO_MANY_RULES(*, most: int) -> None: ...
@problem("E0238", "`{name}` stands here twice", "the second one", "give one of them another name")
def SAME_NAMES(*, name: str) -> None: ...
@problem("E0239", "a draw needs a name", help="its name is how a trace pins it")
def DISCARDED_DRAW() -> None: ...


@problem("E0240", "`{name}` takes {wanted} for `{parameter}`; this is {found}", "{found}", "{usage}")
def WRONG_KIND(*, name: str, wanted: str, parameter: str, found: str, usage: str) -> None: ...
@problem("E0240", "`{name}` takes {wanted}; this is {found}", "{found}", "{usage}")
def WRONG_KIND_UNNAMED(*, name: str, wanted: str, found: str, usage: str) -> None: ...
@problem("E0248", "`{module}` cannot be the `{parameter}` of `{name}`, which applies it to {takes}: {reason}")
def MISFIT(*, module: str, parameter: str, name: str, takes: str, reason: str, repair: str) -> None: ...
@problem("E0249", "the module `{name}` is not applied", "only named", help="call it: {usage}")
def NOT_APPLIED(*, name: str, usage: str) -> None: ...
@problem(
    "E0241",
    "`{op}` does not take {lhs} and {rhs}",
    help="numbers have all operators, strings `+` and comparisons, lists `+`; `==` and `!=` take any two values",
)
def OPERANDS(*, op: str, lhs: str, rhs: str) -> None: ...
@problem("E0242", "a condition is true or false; this is {found}", "{found}", help="compare it with something")
def NO_CONDITION(*, found: str) -> None: ...
@problem("E0242", "a weight is a number; this is {found}", "{found}", help="write a number, or compute one")
def NO_WEIGHT(*, found: str) -> None: ...
@problem(
    "E0243",
    "{what}; this is {found}",
    "{found}",
    "write a list, `[a, b]`, or `range(n)` for the ints from 0 to n - 1",
)
def NO_LIST(*, what: str, found: str) -> None: ...
@problem("E0243", "{what}; this is a range", "a range", "`range(2, 5)` is the list of the ints from 2 to 4")
def NO_RANGE_LIST(*, what: str) -> None: ...
@problem("E0243", "{kind} is not indexed like this", help="`[n]` of a list or a string, or `[a:b]`, with ints")
def NO_INDEX(*, kind: str) -> None: ...
@problem("E0243", "a slice goes from an int to an int; this is {kind}", help="write ints, or leave an end out: `[a:]`")
def NO_BOUND(*, kind: str) -> None: ...
@problem("E0245", "a target has no fact `{name}`", help="leave it out; `tensorc-dsl explain E0245` lists the facts")
def NO_FACT(*, name: str) -> None: ...
@problem("E0245", "`{name}` of a target is {wanted}", help="write {wanted}")
def WRONG_FACT(*, name: str, wanted: str) -> None: ...
@problem(
    "E0245",
    "target `{name}` does not say its {facts}",
    help="write them, `cuda(threads=1024, shared_memory=49152, registers=65536)`, or `use std.gpu.targets`",
)
def MISSING_FACTS(*, name: str, facts: str) -> None: ...
@problem("E0245", "`{name}` is a target already", help="give this one another name")
def TAKEN_TARGET(*, name: str) -> None: ...
@problem(
    "E0260",
    "a constant is written down, and not computed",
    help="a number, a string, `true`, `false`, a list of these, or a map from them to weights",
)
def NOT_CONSTANT() -> None: ...
@problem("E0261", "`{name}` is a constant of this file", "bound again", "give one of them another name")
def CONSTANT_AGAIN(*, name: str) -> None: ...
@problem(
    "E0262",
    "the weights of `{draw}` cannot be used: {why}",
    help="write {{value: weight, …, _: weight}}; `_` is the weight of the draw's own distribution",
)
def NO_WEIGHTS(*, draw: str, why: str) -> None: ...
@problem("E0262", "`{draw}` has two lists of weights", help="put all its values in one")
def WEIGHED_TWICE(*, draw: str) -> None: ...
@problem(
    "E0244",
    "`{name}` is {wanted}, but its default is {found}",
    "{found}",
    help="write a default of that kind, or change the type",
)
def DEFAULT_KIND(*, name: str, wanted: str, found: str) -> None: ...


@problem(
    "E0213",
    "the iterations of the {kind} loop `{loop}` cannot run at once: {why}",
    help="write `for {loop}` in place of `{written} {loop}`, or give each iteration elements of its own",
)
def AT_ONCE(*, kind: str, loop: str, why: object, written: str) -> None: ...
@problem(
    "E0214",
    "iterator `{name}` of `{block}` is {value}{at}, and its extent is {extent}",
    help="guard the block with `where`, or bind `{name}` to a loop of {extent} iterations",
)
def ITERATOR_LEAVES(*, block: str, name: str, value: int, extent: str, at: str) -> None: ...
@problem(
    "E0214",
    "`{block}` {does} `{buffer}` outside of it: subscript {position} is {value}{at}, and its size there is {extent}",
    help="guard the block with `where`, or the read with `… if … else …`",
)
def BLOCK_LEAVES(*, block: str, does: str, buffer: str, position: int, value: int, extent: int, at: str) -> None: ...


PROVED_BY_VERIFY = frozenset((AT_ONCE.code, ITERATOR_LEAVES.code))
"""Findings about programs that are written out which `verify` finds as well, and shows by a run."""


@problem("W0201", "`{name}` is never used")
def UNUSED_LET(*, name: str, repair: str) -> None: ...
@problem("W0202", "the draw `{name}` is never used", help="it makes the search larger and changes nothing; remove it")
def UNUSED_DRAW(*, name: str) -> None: ...
@problem("W0203", "the parameter `{name}` is never used", help="remove it, or call it `_{name}` where it must be there")
def UNUSED_PARAMETER(*, name: str) -> None: ...
@problem("W0204", "`{name}` hides another `{name}`", help="give one of them a name of its own")
def SHADOWED(*, name: str) -> None: ...
@problem(
    "W0205",
    "`{comment}` is a comment, not part of the value",
    help="a quotient is `… / {divisor}`, which floors on integers; a comment that is meant begins with a word",
)
def CUT_OFF(*, comment: str, divisor: str) -> None: ...
@problem(
    "W0206",
    "no step of this `try` can be refused",
    help="write what is in it without `try`; only steps, draws and queries can be refused",
)
def NEVER_REFUSED() -> None: ...
@problem(
    "W0207",
    "`{text}` stands alone, and changes nothing",
    help="call a step, or keep the value by `let`; a query is a condition of `if`",
)
def NO_EFFECT(*, text: str) -> None: ...


@problem(
    "E0251",
    "no size comes to this case: the cases above have all of its sizes",
    help="leave it out, or put it above the case that has its sizes",
)
def UNREACHED_CASE() -> None: ...
@problem(
    "E0252",
    "a `select` is the last statement of a schedule",
    help="put the steps for all sizes above it, and the other ones into its cases",
)
def SELECT_NOT_LAST() -> None: ...
@problem(
    "E0252",
    "a module works on one program, and a `select` divides it",
    help="call the module in the cases of a `select` of the schedule: `select M {{ 1 => {{ {name}(…) }}; _ => {{ … }} }}`",
)
def SELECT_IN_MODULE(*, name: str) -> None: ...
@problem("E0253", "`{compute}` has no dimension `{name}`")
def NO_SELECTED(*, compute: str, name: str) -> None: ...
@problem(
    "E0253", "`{name}` is named twice", "the second time", help="leave it out: a case has one size of each dimension"
)
def SELECTED_TWICE(*, name: str) -> None: ...
