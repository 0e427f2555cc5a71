"""The distributions that `~` can draw from, by their names in the language: arguments in, distribution and code out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tensorc_dsl.interp.values import Plain, Value, kind_of, plain
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.places import the_loop
from tensorc_dsl.schedule.primitive import LoopRef
from tensorc_dsl.syntax.format_expr import quoted
from tensorc_dsl.trace.draw import Branch, Categorical, Distribution, PerfectTile


class DrawError(Exception):
    """The arguments of a distribution do not fit: the message and a help."""

    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(message)
        self.help = help


@dataclass(frozen=True, slots=True)
class DrawKind:
    """How a distribution is called: its parameters in order, which of them must be given, and what builds it."""

    params: tuple[str, ...]
    required: int
    build: Callable[[Program, Mapping[str, Value]], Distribution]


def _tile(program: Program, args: Mapping[str, Value]) -> Distribution:
    loop, parts, bound = plain(args["loop"]), plain(args["parts"]), plain(args.get("max_innermost"))
    if not isinstance(loop, LoopRef):
        raise DrawError(f"sample_perfect_tile tiles a loop; this is {kind_of(loop)}")
    if not isinstance(parts, int) or isinstance(parts, bool) or not 1 <= parts <= 16:
        raise DrawError(f"`parts` is a number from 1 to 16; this is {parts}")
    if bound is not None and (not isinstance(bound, int) or bound < 1):
        raise DrawError(f"`max_innermost` is a number from 1; this is {bound}")
    extent = constant(the_loop(program, loop)[1].extent)
    if extent is None:
        raise DrawError(
            f"the extent of `{loop.name}` is open, so it has no perfect tiles", "split it by a fixed factor"
        )
    if extent < 1:
        raise DrawError(f"`{loop.name}` has no iterations to tile")
    tile = PerfectTile(extent, parts, extent if bound is None else min(bound, extent))
    if tile.size() == 0:
        raise DrawError(f"`{loop.name}` runs {extent} times: {tile.describe()}", "allow a larger max_innermost")
    return tile


def _category(value: Value) -> Plain:
    v = plain(value)
    if isinstance(v, bool | int | float | str):
        return v
    raise DrawError(f"a category is a number, a string or a bool; this is {kind_of(v)}")


def _categorical(program: Program, args: Mapping[str, Value]) -> Distribution:
    del program
    items = args["values"]
    if not isinstance(items, tuple) or not items:
        raise DrawError("sample_categorical needs at least one value", "write [a, b] or {a: weight, b: weight}")
    pairs: list[tuple[Plain, float]] = []
    for item in items:
        if isinstance(item, tuple) and len(item) == 2:
            weight = plain(item[1])
            if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 <= weight < float("inf"):
                raise DrawError(f"a weight is a finite number from 0; this is {weight}")
            pairs.append((_category(item[0]), float(weight)))
        else:
            pairs.append((_category(item), 1.0))
    values = tuple(v for v, _ in pairs)
    if len({(type(v), v) for v in values}) != len(values):
        raise DrawError("a category is listed twice", "name each value once, with the sum of its weights")
    if not any(w > 0 for _, w in pairs):
        raise DrawError("every category has weight 0")
    return Categorical(values, tuple(w for _, w in pairs))


DRAWS: dict[str, DrawKind] = {
    "sample_perfect_tile": DrawKind(("loop", "parts", "max_innermost"), 2, _tile),
    "sample_categorical": DrawKind(("values",), 1, _categorical),
}


def literal(value: Plain) -> str:
    """A plain value as the language writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    return repr(value)


def _weighted(values: tuple[Plain, ...], weights: tuple[float, ...]) -> str:
    if all(w == 1.0 for w in weights):
        return f"sample_categorical([{', '.join(map(literal, values))}])"
    pairs = ", ".join(f"{literal(v)}: {w!r}" for v, w in zip(values, weights, strict=True))
    return f"sample_categorical({{{pairs}}})"


def draw_code(distribution: Distribution, loop: str) -> str:
    """The call that makes this distribution; `loop` is what the trace calls the loop that a tile is of."""
    match distribution:
        case PerfectTile(extent=extent, parts=parts, max_innermost=bound):
            limit = f", max_innermost={bound}" if bound < extent else ""
            return f"sample_perfect_tile({loop}, parts={parts}{limit})"
        case Categorical(values=values, weights=weights):
            return _weighted(values, weights)
        case Branch(weights=weights):
            return _weighted(tuple(range(len(weights))), weights)
