"""Random pipelines of stencils over images of any size, as text.

Each stage has the size of one before it, half of it, twice it, or a border more, and reads it beyond each kind of border.
Half of an image with one row has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from campaigns.random_pipelines import FLOATS, as_type, combined, factor
from tensorc_dsl.ir.sizes import Sizes

TYPES = ("f32", "f32", "f32", "f64", "i32", "i16", "u8")
SIZES = "H=1..300, W=1..300"
"""The sizes of a task: what is larger has no parts that these have not."""
ROWS = (1, 2, 3, 7, 13, 31, 37, 64, 67, 131)
COLUMNS = (1, 2, 5, 15, 16, 17, 33, 61, 64, 97, 131, 257)
"""Sizes to ask at: tiny ones, whole vectors, and primes."""
SCALES = {"{}": (1, 1), "{} / 2": (2, 1), "2 * {}": (1, 2)}
"""The size of a stage over that of the one before, by how many elements of that one it moves on, and after how many of its
own."""
DEEPEST = 12
"""The length of the text of a size from which on stages keep it."""


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    rows: str
    columns: str
    dtype: str


def open_pipeline(seed: int) -> str:
    """A compute, `pipeline`, of an image of `H` rows and `W` columns."""
    rng = Random(seed)
    stages, lines = [Stage("X", "H", "W", rng.choice(TYPES))], list[str]()
    count = rng.randint(2, 6)
    for n in range(count):
        name = "Y" if n == count - 1 else f"S{n}"
        sources = [stages[-1], *rng.sample(stages[-3:-1], min(rng.randint(0, 1), len(stages[-3:-1])))]
        made, text = _window(rng, name, stages[-1]) if rng.random() < 0.3 else _reads(rng, name, sources)
        lines += text
        stages.append(made)
    last, first = stages[-1], stages[0]
    text = "\n".join(f"    {'' if x.startswith('Y[') else 'let '}{x}" for x in lines)
    left = f"Y: {last.dtype}[{last.rows}, {last.columns}]"
    return f"compute pipeline(X: {first.dtype}[H, W]) -> {left} {{\n{text}\n}}"


def sizes_to_ask(seed: int) -> tuple[Sizes, ...]:
    """The smallest image, a row, a column, and two others."""
    rng = Random(seed)
    some = tuple({"H": rng.choice(ROWS), "W": rng.choice(COLUMNS)} for _ in range(2))
    return ({"H": 1, "W": 1}, {"H": 1, "W": rng.choice(COLUMNS)}, {"H": rng.choice(ROWS), "W": 1}, *some)


def _reads(rng: Random, name: str, sources: list[Stage]) -> tuple[Stage, list[str]]:
    """A stage that adds up elements of those before it, or is the least or greatest of them."""
    s = sources[0]
    rows, down = _scaled(rng, s.rows)
    columns, across = _scaled(rng, s.columns)
    made = Stage(name, rows, columns, rng.choice(TYPES))
    at = [(rng.randint(-1, 2), rng.randint(-1, 2)) for _ in range(rng.randint(1, 4))]
    terms: list[str] = []
    for source in sources:
        steps = (down, across) if source is s else ((1, 1), (1, 1))
        borders = rng.choice(BORDERS), rng.choice(BORDERS)
        for shifts in dict.fromkeys(at):
            places = zip(("y", "x"), (source.rows, source.columns), steps, shifts, borders, strict=True)
            (i, is_row), (j, is_column) = (_subscript(*place) for place in places)
            read = f"({source.name}[{i}, {j}] if {is_row} and {is_column} else {rng.choice([0, 1])})"
            terms.append(f"{factor(rng, made.dtype)} * {as_type(source.dtype, made.dtype, read)}")
    return made, [f"{name}[y in {rows}, x in {columns}] = {combined(rng, list(dict.fromkeys(terms)))}"]


def _scaled(rng: Random, size: str) -> tuple[str, tuple[int, int]]:
    """A size from one before, and the step of its reads."""
    form = "{}" if len(size) > DEEPEST else rng.choice(["{}", "{}", "{}", *SCALES])
    return form.format(_factor(size) if form != "{}" else size), SCALES[form]


def _factor(size: str) -> str:
    return f"({size})" if " " in size else size


BORDERS = ("clamp", "clamp", "zeros", "wrapped", "reflected", "flipped")


def _subscript(var: str, size: str, step: tuple[int, int], shift: int, border: str) -> tuple[str, str]:
    """A subscript, and the condition without which nothing is read."""
    p, q = step
    n = _factor(size)
    place = f"{p} * {var}" if p > 1 else f"{var} / {q}" if q > 1 else var
    place = f"{place} + {shift}" if shift > 0 else f"{place} - {-shift}" if shift else place
    match border:
        case "clamp":
            return f"clamp({place}, 0, {n} - 1)", f"{n} > 0"
        case "zeros":
            return place, f"0 <= {place} < {n}"
        case "wrapped":
            return f"({place}) % max({n}, 1)", f"{n} > 0"
        case "reflected":
            mirror = f"({place}) % max(2 * {n}, 1)"
            return f"min({mirror}, 2 * {n} - 1 - {mirror})", f"{n} > 0"
        case _:
            return f"clamp({n} - 1 - ({place}), 0, {n} - 1)", f"{n} > 0"


def _window(rng: Random, name: str, s: Stage) -> tuple[Stage, list[str]]:
    """A sum, or an extreme, of a window of an image that is extended."""
    r, op = rng.choice([(1, "sum"), (1, "max"), (2, "sum"), (1, "min")])
    padded = Stage(f"{name}P".replace("YP", "ZP"), f"{s.rows} + {2 * r}", f"{s.columns} + {2 * r}", s.dtype)
    inside = f"clamp(y - {r}, 0, {s.rows} - 1), clamp(x - {r}, 0, {s.columns} - 1)"
    first = (
        f"{padded.name}[y in {padded.rows}, x in {padded.columns}] = "
        f"{s.name}[{inside}] if {s.rows} > 0 and {s.columns} > 0 else 0"
    )
    n = 2 * r + 1
    scale = " * 0.0625" if s.dtype in FLOATS else ""
    value = f"{op}[i in {n}, j in {n}] {padded.name}[y + i, x + j]{scale}"
    made = Stage(name, s.rows, s.columns, s.dtype)
    return made, [first, f"{name}[y in {s.rows}, x in {s.columns}] = {value}"]
