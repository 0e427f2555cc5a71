"""Random pipelines of stencils as text: three to eight stages, shifts, strides, windows, and what lies beyond a border."""

from __future__ import annotations

from random import Random

Size = tuple[int, int]


def pipeline(seed: int) -> str:
    """A file with one task, `p`, over the library's space."""
    rng = Random(seed)
    rows, columns = rng.randint(30, 60), rng.randint(36, 90)
    sizes: dict[str, Size] = {"X": (rows, columns)}
    lines: list[str] = []
    count = rng.randint(3, 8)
    for n in range(count):
        name = "Y" if n == count - 1 else f"S{n}"
        # The stage before is always read, so that nothing is left over.
        recent = [*sizes][-3:]
        sources = [recent[-1], *rng.sample(recent, rng.randint(0, 1))]
        terms, sizes[name] = _stage(rng, sources, sizes)
        h, w = sizes[name]
        lines.append(f"    {'let ' * (name != 'Y')}{name}[y in {h}, x in {w}] = {terms}")
    h, w = sizes["Y"]
    text = "\n".join(lines)
    return (
        "use std.cpu.{default}\n\n"
        f"compute pipeline(X: f32[{rows}, {columns}]) -> Y: f32[{h}, {w}] {{\n{text}\n}}\n\n"
        "task p = pipeline() with default\n"
    )


def _stage(rng: Random, sources: list[str], sizes: dict[str, Size]) -> tuple[str, Size]:
    h, w = (min(sizes[s][d] for s in sources) for d in (0, 1))
    kind = rng.choice(["shifts", "clamped", "zeros", "down", "up", "window", "point"])
    if (kind == "down" and min(h, w) < 16) or (kind == "up" and max(h, w) > 120):
        kind = "point"
    at = [(rng.randint(0, 2), rng.randint(0, 2)) for _ in range(rng.randint(1, 3))]
    match kind:
        case "shifts" if min(h, w) > 8:
            terms = [f"{s}[y + {a}, x + {b}]" for s in sources for a, b in at]
            size = h - 2, w - 2
        case "clamped":
            terms = [
                f"{s}[clamp(y + {a} - 1, 0, {h - 1}), clamp(x + {b} - 1, 0, {w - 1})]" for s in sources for a, b in at
            ]
            size = h, w
        case "zeros":
            terms = [f"({s}[y - {a}, x - {b}] if y >= {a} and x >= {b} else 0)" for s in sources for a, b in at]
            size = h, w
        case "down":
            terms = [f"{s}[2 * y + {a}, 2 * x + {b}]" for s in sources for a, b in at]
            size = (h - 1) // 2, (w - 1) // 2
        case "up":
            terms = [f"{s}[y / 2, x / 2]" for s in sources]
            size = 2 * h, 2 * w
        case "window" if min(h, w) > 8:
            return f"sum[i in 3, j in 2] {sources[0]}[y + i, x + j] * 0.25", (
                sizes[sources[0]][0] - 2,
                sizes[sources[0]][1] - 1,
            )
        case _:
            terms = [f"{s}[y, x]" for s in sources]
            size = h, w
    factors = [f"{rng.choice([0.5, 0.25, 1.5])} * {t}" for t in dict.fromkeys(terms)]
    return " + ".join(factors), size
