"""Random pipelines of stencils as text.

Each stage reads one or two of those before it. Its reads are shifted, strided, at fractions of a step, or mirrored, with each
kind of border; it is a sum of them, a window or a scan, of its own type. Some stages are results as well, and some sizes are
below the window, or 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

TYPES = ("f32", "f32", "f32", "f32", "f64", "i32", "i16", "u8")
FLOATS = ("f32", "f64")
SMALL = (0, 1, 2, 3, 5, 7, 11, 13)
STEPS = ((1, 1), (1, 1), (1, 1), (2, 1), (1, 2), (3, 2), (2, 3), (3, 1))
"""By how many elements of the stage that is read it moves on, and after how many of its own."""


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    rows: int
    columns: int
    dtype: str

    @property
    def type(self) -> str:
        return f"{self.dtype}[{self.rows}, {self.columns}]"


def pipeline(seed: int) -> str:
    """A compute, `pipeline`."""
    rng = Random(seed)
    small = rng.random() < 0.15
    rows, columns = (rng.choice(SMALL) if small else rng.randint(30, most) for most in (60, 90))
    first = Stage("X", rows, columns, rng.choice(TYPES))
    stages, lines, results = [first], list[str](), list[Stage]()
    count = rng.randint(3, 8)
    for n in range(count):
        last = n == count - 1
        # The stage before is always read, so that nothing is left over.
        recent = stages[-3:]
        sources = [recent[-1], *rng.sample(recent, rng.randint(0, 1))]
        is_result = last or rng.random() < 0.1
        left, right, made = _stage(rng, "Y" if last else f"R{n}" if is_result else f"S{n}", sources)
        lines.append(f"    {'' if is_result else 'let '}{left} = {right}")
        stages.append(made)
        results += [made] * is_result
    told = ", ".join(f"{s.name}: {s.type}" for s in results)
    text = "\n".join(lines)
    return f"compute pipeline(X: {first.type}) -> {told} {{\n{text}\n}}"


def in_a_file(compute: str, sizes: str = "") -> str:
    """A file with one task, `p`, of a compute `pipeline` with these sizes over the library's space."""
    return f"use std.cpu.{{default}}\n\n{compute}\n\ntask p = pipeline({sizes}) with default\n"


def _stage(rng: Random, name: str, sources: list[Stage]) -> tuple[str, str, Stage]:
    """What stands left and right of `=` in the statement of a stage, and the stage."""
    s = sources[0]
    h, w = s.rows, s.columns
    kind = rng.choice(["reads", "reads", "reads", "reads", "window", "scan"])
    if kind == "scan" and min(h, w) > 0:
        return _scan(rng, name, s)
    if kind == "window" and min(h, w) > 8:
        return _window(rng, name, s)
    made = Stage(name, _size(rng, h), _size(rng, w), rng.choice(TYPES))
    at = [(rng.randint(0, 2), rng.randint(0, 2)) for _ in range(rng.randint(1, 3))]
    terms: list[str] = []
    for source in sources:
        ways = _way(rng, "y", source.rows, made.rows), _way(rng, "x", source.columns, made.columns)
        for a, b in dict.fromkeys(at):
            (i, outside), (j, beyond) = (_subscript(way, n) for way, n in zip(ways, (a, b), strict=True))
            guard = " and ".join(g for g in (outside, beyond) if g)
            read = f"{source.name}[{i}, {j}]"
            value = f"({read} if {guard} else {rng.choice([0, 1])})" if guard else read
            terms.append(f"{factor(rng, made.dtype)} * {as_type(source.dtype, made.dtype, value)}")
    return f"{name}[y in {made.rows}, x in {made.columns}]", combined(rng, list(dict.fromkeys(terms))), made


def _size(rng: Random, n: int) -> int:
    """The size of a stage along one direction, of one that reads `n` elements."""
    size = rng.choice([n, n, n, n - 2, n - 2, n // 2, 2 * n, 3 * n // 2, 2 * n // 3, n // 3])
    return n if size > 120 or (size < 8 < n) else max(size, 0)


@dataclass(frozen=True, slots=True)
class Way:
    """How one direction of a stage is read: at `step[0] * var / step[1]`, and what is read beyond the border."""

    var: str
    size: int
    step: tuple[int, int]
    border: str


def _way(rng: Random, var: str, size: int, own: int) -> Way:
    """A way in which a stage of `own` elements reads one of `size`; all of its reads may be up to two elements further."""
    step = rng.choice(STEPS)
    fits = own == 0 or (own - 1) * step[0] // step[1] + 2 < size
    if fits and rng.random() < 0.5:
        return Way(var, size, step, "none")
    if size == 0:
        return Way(var, size, step, "zeros")
    return Way(var, size, step, rng.choice(["clamp", "clamp", "zeros", "wrapped", "reflected", "flipped"]))


def _subscript(way: Way, shift: int) -> tuple[str, str]:
    """A subscript, and the condition without which nothing is read."""
    p, q = way.step
    place = f"{p} * {way.var}" if p > 1 else way.var
    place = f"{place} / {q}" if q > 1 else place
    last = way.size - 1
    match way.border:
        case "none":
            return f"{place} + {shift}", ""
        case "clamp":
            return f"clamp({place} + {shift} - 1, 0, {last})", ""
        case "zeros":
            return f"{place} + {shift} - 1", f"0 <= {place} + {shift} - 1 < {way.size}"
        case "wrapped":
            return f"({place} + {shift} - 1) % {way.size}", ""
        case "reflected":
            mirror = f"({place} + {shift} - 1) % {2 * way.size}"
            return f"min({mirror}, {2 * way.size - 1} - {mirror})", ""
        case _:
            return f"clamp({last} - {place} + {shift}, 0, {last})", ""


def as_type(dtype: str, to: str, value: str) -> str:
    if dtype == to:
        return value
    # What is beyond a narrow type ends at its ends: a rounded number that wraps around has no tolerance.
    return f"saturate({to}, {value})" if to not in FLOATS else f"{to}({value})"


def factor(rng: Random, dtype: str) -> str:
    return rng.choice(["0.5", "0.25", "1.5"] if dtype in FLOATS else ["1", "2", "3"])


def combined(rng: Random, terms: list[str]) -> str:
    if len(terms) > 1 and rng.random() < 0.15:
        found = terms[0]
        for t in terms[1:]:
            found = f"{rng.choice(['min', 'max'])}({found}, {t})"
        return found
    return " + ".join(terms)


def _window(rng: Random, name: str, s: Stage) -> tuple[str, str, Stage]:
    op = rng.choice(["sum", "sum", "min", "max"])
    rows, columns, step = rng.choice([(3, 2, 1), (1, 5, 1), (5, 1, 1), (3, 3, 1), (2, 2, 2), (3, 3, 2)])
    made = Stage(name, (s.rows - rows) // step + 1, (s.columns - columns) // step + 1, s.dtype)
    y, x = (f"{step} * {var}" if step > 1 else var for var in ("y", "x"))
    scale = " * 0.25" if s.dtype in FLOATS else ""
    value = f"{op}[i in {rows}, j in {columns}] {s.name}[{y} + i, {x} + j]{scale}"
    return f"{name}[y in {made.rows}, x in {made.columns}]", value, made


def _scan(rng: Random, name: str, s: Stage) -> tuple[str, str, Stage]:
    """A recursive filter along columns or rows, in one direction or the other."""
    along, back = rng.choice("yx"), rng.random() < 0.5
    last = (s.rows if along == "y" else s.columns) - 1
    begin, before = (str(last), f"{along} + 1") if back else ("0", f"{along} - 1")
    first, own = (
        (f"{s.name}[{begin}, x]", f"{name}[{before}, x]")
        if along == "y"
        else (f"{s.name}[y, {begin}]", f"{name}[y, {before}]")
    )
    here = f"{s.name}[y, x]"
    step = f"0.25 * {here} + 0.5 * {own}" if s.dtype in FLOATS else f"{here} / 2 + {own} / 2"
    return (
        f"{name}[y in {s.rows}, x in {s.columns}]",
        f"scan[{along}] init {first} step {step}",
        Stage(name, s.rows, s.columns, s.dtype),
    )
