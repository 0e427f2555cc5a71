"""Random sums over matches, with random schedules that scatter them, as files of the language."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.ir.dtypes import DType, highest, lowest
from tensorc_dsl.ir.program import Program
from tensorc_dsl.reference.evaluate import shape_of

KEYS = ["u8", "i8", "u16", "i16", "i32", "u32", "i64", "u64", "f32", "f64"]
FOLDS = {"f32": ["sum", "max", "min"], "i32": ["sum", "max", "min"], "bool": ["any", "all"]}


class Scatter:
    """A compute whose elements are reductions over matches, and a schedule in which data choose where each term goes.

    `C[a.., b, c.., d] = sum[i, j] (V[i, j, d] if X[i, j] == b else 0)`: `a` is an image of its own, `b` a class, `c`
    perhaps a second one, `d` an element of a row.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.key = rng.choice(KEYS)
        self.dtype = rng.choice(["f32", "f32", "i32", "bool"])
        self.fold = rng.choice(FOLDS[self.dtype])
        self.classes = [rng.choice([2, 5, 11, 17]) for _ in range(rng.choice([1, 1, 2]))]
        self.terms = [rng.choice([3, 7, 12, 19]) for _ in range(rng.choice([1, 2]))]
        self.images = rng.choice([0, 0, 2, 3])
        self.row = rng.choice([0, 0, 4, 9])

    def text(self) -> str:
        """The file: a compute, a schedule and the task `t`."""
        own = [*(["a"] if self.images else []), *("bc"[: len(self.classes)]), *(["d"] if self.row else [])]
        sizes = [*([self.images] if self.images else []), *self.classes, *([self.row] if self.row else [])]
        steps = ["i", "j"][: len(self.terms)]
        image = ["a"] if self.images else []
        read = ", ".join([*image, *steps])
        shape = ", ".join(map(str, [*([self.images] if self.images else []), *self.terms]))
        value = f"V[{', '.join([*steps, *(['d'] if self.row else [])])}]"
        values = ", ".join(map(str, [*self.terms, *([self.row] if self.row else [])]))
        params = [f"X: {self.key}[{shape}]", f"Z: i32[{shape}]", f"V: {self.dtype}[{values}]"]
        ranges = ", ".join(f"{v} in {n}" for v, n in zip(own, sizes, strict=True))
        result = ", ".join(map(str, sizes))
        reduced = ", ".join(f"{v} in {n}" for v, n in zip(steps, self.terms, strict=True))
        return (
            f"compute f({', '.join(params)}) -> C: {self.dtype}[{result}] {{\n"
            f"    C[{ranges}] = {self.fold}[{reduced}] ({self.term(read, value)})\n}}\n"
            f"schedule s for f {{\n{self.schedule(own, steps)}}}\ntask t = f() with s\n"
        )

    def term(self, read: str, value: str) -> str:
        neutral = {
            "sum": "0", "max": "-2147483648" if self.dtype == "i32" else "-inf",
            "min": "2147483647" if self.dtype == "i32" else "inf", "any": "false", "all": "true",
        }[self.fold]  # fmt: skip
        if self.dtype == "f32" and neutral == "0":
            neutral = "0.0"
        conditions = [self.match("X", self.key, "b", read)]
        if len(self.classes) == 2:
            conditions.append(self.match("Z", "i32", "c", read))
        if self.rng.random() < 0.3:
            conditions.append(f"Z[{read}] % 3 != 1")
        self.rng.shuffle(conditions)
        cond = " and ".join(conditions)
        if self.dtype == "bool":
            return f"{cond} and {value}" if self.fold == "any" else f"not ({cond}) or {value}"
        form = self.rng.randrange(4)
        if form == 0 and self.fold == "sum" and self.dtype == "i32":
            return f"{value} * i32({cond})"
        if form == 1 and self.fold == "sum":
            return f"{self.dtype}({cond})"
        if form == 2:
            return f"{neutral} if not ({cond}) else {value}"
        if form == 3:
            edge = self.rng.randrange(1, self.terms[0] + 1)
            return f"({value} if {cond} else {neutral}) if i < {edge} else {neutral}"
        return f"{value} if {cond} else {neutral}"

    def match(self, name: str, t: str, loop: str, read: str) -> str:
        """That a number of the data is the position `loop`, or moves with it by one."""
        n = self.classes["bc".index(loop)]
        data = f"{name}[{read}]"
        place = self.rng.choice([loop, loop, f"{n - 1} - {loop}", f"{loop} + 1"])
        if not t.startswith("f"):
            data = self.rng.choice([data, data, f"{data} / 2", f"{data} % 7"])
        equal = f"{data} == {t}({place})"
        return self.rng.choice([equal, f"{t}({place}) == {data}", f"not ({data} != {t}({place}))"])

    def schedule(self, own: list[str], steps: list[str]) -> str:
        """The loops over terms outside of the classes, in any order with the others; perhaps parts for the cores."""
        rng = self.rng
        lines = [f"let [{', '.join([*own, *steps])}] = C.loops"]
        block, terms, front = "C", list(steps), [x for x in own if x == "a"]
        if rng.random() < 0.5:
            cut = rng.choice(terms)
            inside = rng.choice([2] if self.terms["ij".index(cut)] < 6 else [2, 3, 5])
            lines.append(f"let [{cut}0, {cut}1] = split({cut}, [_, {inside}], partial=true)")
            terms = [x for t in terms for x in ([f"{t}0", f"{t}1"] if t == cut else [t])]
        part = rng.choice(terms) if rng.random() < 0.5 else None
        if part is not None and len(terms) > 1:
            lines.append(f"let p = rfactor(C, {part}, axis={rng.choice([0, -1])})")
            block, front = "p", [*front, part]
            terms.remove(part)
        else:
            part = None
        rng.shuffle(terms)
        rng.shuffle(front)
        inner = [*terms, *(x for x in own if x in "bc")]
        if self.row:  # the row may be anywhere
            inner.insert(rng.randrange(len(inner) + 1), "d")
        outer = [x for x in (*front, *inner) if x not in "bc"]
        lines.append(f"reorder({', '.join([*front, *inner])})")
        first = next(x for x in (*front, *inner) if x in terms)
        lines.append(f"decompose_reduction({block}, {first})")
        lines += [f"scatter({x})" for x in rng.sample([x for x in own if x in "bc"], len(self.classes))]
        if front and rng.random() < 0.6:
            lines.append(f"parallel({front[0]})")
        elif rng.random() < 0.4:
            lines.append(f"unroll({rng.choice([x for x in outer if x != 'd'])})")
        if self.row and inner[-1] == "d":
            lines.append("vectorize(d)")
        return "".join(f"    {x}\n" for x in lines)

    def inputs(self, p: Program) -> dict[str, Array]:
        """Data most of which are places, with others before, behind and between them."""
        rng = np.random.default_rng(self.rng.randrange(2**32))
        out: dict[str, Array] = {}
        for q in p.inputs:
            if q.name in "XZ":
                top = max(self.classes) + 3
                out[q.name] = _places(rng, q.dtype, shape_of(q), top)
            else:
                numbers = (
                    rng.integers(0, 2, shape_of(q)) if q.dtype.name == "bool" else rng.integers(-9, 10, shape_of(q))
                )
                out[q.name] = numbers.astype(stored_dtype(q.dtype))
        return out


def _places(rng: np.random.Generator, t: DType, shape: tuple[int, ...], top: int) -> Array:
    low = 0 if t.kind == "uint" else -3
    found = rng.integers(low, top, shape).astype(stored_dtype(t))
    strange = [0.5, -0.0, np.nan, np.inf, -np.inf, 1e30] if t.is_float else [int(lowest(t)), int(highest(t))]
    at = rng.random(shape) < 0.1
    found[at] = rng.choice(np.array(strange, stored_dtype(t)), int(at.sum()))
    return found


def exact(found: Mapping[str, Array], want: Mapping[str, Array]) -> bool:
    """Whether the results are the same: sums of small integers are exact in each type."""
    return all(np.array_equal(np.asarray(found[n], np.float64), np.asarray(w, np.float64)) for n, w in want.items())
