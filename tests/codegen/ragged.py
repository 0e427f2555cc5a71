"""Random reductions whose terms stand under conditions on their loops, with random schedules, as files of the language."""

from __future__ import annotations

import random

import numpy as np

from tensorc_dsl.ir.arrays import Array, stored_dtype
from tensorc_dsl.ir.program import Program
from tensorc_dsl.reference.evaluate import shape_of

EDGES = ["i8", "u8", "i16", "i32", "i64", "u32", "u64"]
FOLDS = {"f32": ["sum", "sum", "max", "min"], "f64": ["sum"], "i32": ["sum", "max", "min"], "bool": ["any", "all"]}
NEUTRAL = {
    "sum": {"f32": ["0.0", "0.0", "-0.0"], "f64": ["0.0"], "i32": ["0"]},
    "max": {"f32": ["-inf"], "i32": ["-2147483648"]},
    "min": {"f32": ["inf"], "i32": ["2147483647"]},
}


class Ragged:
    """`C[i, j] = sum[p, q] (V[p, q, j] if R[i] <= p and 2 * q < i + 3 else 0.0)`: conditions are affine, over data, in any
    form, order and depth, and hold for all terms, for some or for none. `R` has one element more than there are rows.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.dtype = rng.choice(["f32", "f32", "f64", "i32", "bool"])
        self.fold = rng.choice(FOLDS[self.dtype])
        self.rows, self.columns = rng.choice([1, 2, 7, 13, 24]), rng.choice([0, 0, 1, 5, 16])
        self.terms = [rng.choice([1, 3, 8, 21, 40, 67]) for _ in range(rng.choice([1, 1, 1, 2]))]
        self.edge = rng.choice(EDGES)

    @property
    def own(self) -> list[str]:
        return ["i", *(["j"] if self.columns else [])]

    @property
    def steps(self) -> list[str]:
        return ["p", "q"][: len(self.terms)]

    @property
    def sizes(self) -> dict[str, int]:
        """The extents of all loops."""
        own = [self.rows, *([self.columns] if self.columns else [])]
        return dict(zip([*self.own, *self.steps], [*own, *self.terms], strict=True))

    def compute(self) -> str:
        """The compute `f`."""
        read = [*self.steps, *(["j"] if self.columns else [])]
        values, result = (", ".join(str(self.sizes[x]) for x in names) for names in (read, self.own))
        own, steps = (", ".join(f"{x} in {self.sizes[x]}" for x in names) for names in (self.own, self.steps))
        edges = f"R: {self.edge}[{self.rows + 1}], L: {self.edge}[{self.rows}]"
        return (
            f"compute f({edges}, V: {self.dtype}[{values}]) -> C: {self.dtype}[{result}] {{\n"
            f"    C[{own}] = {self.fold}[{steps}] ({self.term(read)})\n}}\n"
        )

    def text(self) -> str:
        """The file: the compute, a schedule and the task `t`."""
        return f"{self.compute()}schedule s for f {{\n{self.schedule(self.sizes)}}}\ntask t = f() with s\n"

    def term(self, read: list[str]) -> str:
        value = f"V[{', '.join(read)}]"
        conditions = [self.condition() for _ in range(self.rng.choice([1, 1, 2, 2, 3]))]
        cond = " and ".join(conditions)
        if self.dtype == "bool":
            return f"({cond}) and {value}" if self.fold == "any" else f"not ({cond}) or {value}"
        start = self.rng.choice(NEUTRAL[self.fold][self.dtype])
        form = self.rng.randrange(5)
        if form == 0 and self.dtype == "i32" and self.fold == "sum":
            return f"{value} * i32({cond})"
        if form == 1:
            return f"{start} if not ({cond}) else {value}"
        if form == 2:
            return f"({value} if {self.condition()} else {start}) if {cond} else {start}"
        return f"{value} if {cond} else {start}"

    def condition(self) -> str:
        rng, p = self.rng, self.rng.choice(self.steps)
        op = rng.choice(["<", "<=", ">", ">=", "<", "<=", ">=", "=="])
        own = rng.choice([p, p, f"2 * {p}", f"3 * {p} + 1", f"{p} - 2", f"5 - {p}", f"7 - 2 * {p}"])
        if rng.random() < 0.55:
            other = rng.choice(
                [
                    "i",
                    "i + 3",
                    "2 * i",
                    "i - 4",
                    "9",
                    "20 - i",
                    "i / 2",
                    "0",
                    "100",
                    *(["i + j", "j"] if self.columns else []),
                ]
            )
            made = f"{own} {op} {other}"
        else:
            t = self.edge
            fits = own if t not in ("i8", "u8", "u32", "u64") else p
            data = rng.choice(["R[i]", "R[i + 1]", "L[i]", "R[i] / 2", f"R[i] + {t}(1)", "L[i / 2]"])
            made = rng.choice([f"{t}({fits}) {op} {data}", f"{data} {op} {t}({fits})"])
            if rng.random() < 0.2:
                made = f"i >= 2 and {t}({fits}) {op} R[i - 2]"
            elif rng.random() < 0.2:
                made = f"i + {p} + 3 <= {self.rows} and {t}({fits}) {op} R[i + 3]"
        if rng.random() < 0.1:
            made = f"({made} or {p} == 1)"
        return f"not ({made})" if rng.random() < 0.15 else made

    def schedule(self, sizes: dict[str, int]) -> str:
        rng = self.rng
        lines = [f"let [{', '.join(sizes)}] = C.loops"]
        loops: dict[str, list[str]] = {x: [x] for x in sizes}
        for x, n in sizes.items():
            if n > 1 and rng.random() < 0.5:
                cut = rng.choice([2, 3, 4, 8])
                lines.append(f"let [{x}0, {x}1] = split({x}, [_, {cut}], partial=true)")
                loops[x] = [f"{x}0", f"{x}1"]
        order = [x for part in loops.values() for x in part]
        if rng.random() < 0.7:  # sums of whole numbers are the same in any order
            places = [x for x in sizes for _ in loops[x]]
            rng.shuffle(places)
            left = {x: list(part) for x, part in loops.items()}
            order = [left[x].pop(0) for x in places]
            lines.append(f"reorder({', '.join(order)})")
        first = next((x for x in order if x[0] in "pq"), None)
        if first is not None and rng.random() < 0.4:
            lines.append(f"decompose_reduction(C, {first})")
        spatial = [x for x in order if x[0] in "ij"]
        if order[0] in spatial and rng.random() < 0.4:
            lines.append(f"parallel({order[0]})")
            spatial.remove(order[0])
        if spatial and order[-1] == spatial[-1] and rng.random() < 0.6:
            lines.append(f"vectorize({spatial.pop()})")
        if spatial and rng.random() < 0.3:
            lines.append(f"unroll({rng.choice(spatial)})")
        return "".join(f"    {x}\n" for x in lines)

    def inputs(self, p: Program) -> dict[str, Array]:
        """Edges inside of the terms, behind and before them, in any order, and the ends of their type; values with
        infinities, NaN and zeros of both signs."""
        rng = np.random.default_rng(self.rng.randrange(2**32))
        out: dict[str, Array] = {}
        for q in p.inputs:
            t, shape = stored_dtype(q.dtype), shape_of(q)
            if q.name in "RL":
                ends = np.iinfo(t)
                near = np.clip(rng.integers(-4, max(self.terms) + 6, shape), ends.min, ends.max)
                far = rng.choice(np.array([ends.min, ends.max, ends.max - 1], t), shape)
                found = np.where(rng.random(shape) < 0.15, far, near.astype(t))
                out[q.name] = np.sort(found) if rng.random() < 0.5 else found
            elif q.dtype.is_float:
                special = np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, -0.0])
                found = rng.integers(-9, 10, shape).astype(t)
                out[q.name] = np.where(rng.random(shape) < 0.2, rng.choice(special, shape), found).astype(t)
            else:
                out[q.name] = rng.integers(0, 2 if q.dtype.name == "bool" else 10, shape).astype(t)
        return out


def same(a: Array, b: Array) -> bool:
    """Whether numbers are the same, NaN and the signs of zeros among them."""
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    both = np.isnan(x) & np.isnan(y)
    return bool(np.all(both | ((x == y) & (np.signbit(x) == np.signbit(y)))))
