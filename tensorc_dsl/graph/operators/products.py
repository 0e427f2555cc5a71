"""Operators that are products of matrices: of all ranks, with integers, and as an equation of indices."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence

import numpy as np

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.graph.graph import NUMPY, Array, Tensor, Unsupported, literal
from tensorc_dsl.graph.operators.lowering import (
    Lowered,
    Operand,
    Site,
    Writer,
    axis_of,
    broadcast,
    indices,
    onnx_index,
    place,
    ranged,
    scaled,
    stretched,
)


def _matmul_form(a: Operand, b: Operand) -> tuple[tuple[int, ...], list[str], list[str], list[str]]:
    """The shape of a product, its indices, and the subscripts of both operands; `x` is reduced over."""
    if not a.type.rank or not b.type.rank:
        raise Unsupported("a product with a single value")
    left, right = a.shape, b.shape
    if left[-1] != right[-2 if len(right) > 1 else 0]:
        raise Unsupported(f"a product of {a.type} and {b.type}")
    batch = broadcast([left[:-2], right[:-2]])
    rows, columns = left[-2:-1], right[-1:] if len(right) > 1 else ()
    names = indices(len(batch) + 2)
    outer, (row, column) = names[: len(batch)], names[len(batch) :]
    of_left = [*stretched(left[:-2], outer), *([row] if rows else []), "x"]
    of_right = [*stretched(right[:-2], outer), "x", *([column] if columns else [])]
    own = [*outer, *([row] if rows else []), *([column] if columns else [])]
    return (*batch, *rows, *columns), own, of_left, of_right


def _matmul(site: Site) -> Lowered:
    a, b = site.given(0), site.given(1)
    shape, names, left, right = _matmul_form(a, b)
    site.parameter("A", a)
    site.parameter("B", b)
    value = f"sum[x] {place('A', left)} * {place('B', right)}"
    site.stage(f"{place('Y', ranged(names, shape))} = {value}")
    return site.computed("matmul", ("Y", Tensor(a.dtype, shape)))


def _gemm(site: Site) -> Lowered:
    a, b, c = site.given(0), site.given(1), site.optional(2)
    alpha, beta = site.attribute("alpha", 1.0), site.attribute("beta", 1.0)
    if a.type.rank != 2 or b.type.rank != 2:
        raise Unsupported(f"a product of {a.type} and {b.type}")
    across, down = site.attribute("transA", 0), site.attribute("transB", 0)
    rows, inner = a.shape[::-1] if across else a.shape
    other, columns = b.shape[::-1] if down else b.shape
    if inner != other:
        raise Unsupported(f"a product of {a.type} and {b.type}")
    left = place(site.parameter("A", a), ["x", "i"] if across else ["i", "x"])
    right = place(site.parameter("B", b), ["j", "x"] if down else ["x", "j"])
    value = f"sum[x] {left} * {right}"
    if alpha != 1.0:
        value = f"{literal(alpha, a.dtype)} * ({value})"
    if c is not None and beta != 0.0:
        if broadcast([c.shape, (rows, columns)]) != (rows, columns):
            raise Unsupported(f"a term {c.type}")
        added = c.scalar or place(site.parameter("C", c), stretched(c.shape, ["i", "j"]))
        added = added if beta == 1.0 else f"{literal(beta, a.dtype)} * {added}"
        value = f"{added} + ({value})" if alpha == 1.0 else f"{added} + {value}"
    site.stage(f"Y[i in {rows}, j in {columns}] = {value}")
    return site.computed("gemm", ("Y", Tensor(a.dtype, (rows, columns))))


def _zero(site: Site, o: Operand | None, name: str, subscripts: Sequence[str], along_rows: bool) -> str | None:
    """The zero point of an integer operand as i32: one value, or one for each row or column; None for 0."""
    if o is None or (o.value is not None and not o.value.any()):
        return None
    if o.scalar is not None:
        return f"i32({o.dtype}({o.scalar}))"
    if o.type.rank <= 1:
        at = [] if o.type.rank == 0 else ["0"] if o.shape == (1,) else [subscripts[-2 if along_rows else -1]]
    else:
        at = stretched(o.shape, [*subscripts[:-2], subscripts[-2], subscripts[-1]])
    return f"i32({place(site.parameter(name, o), at)})"


def _less(value: str, zero: str | None) -> str:
    return f"i32({value})" if zero is None else f"(i32({value}) - {zero})"


def _matmul_integer(site: Site) -> Lowered:
    a, b = site.given(0), site.given(1)
    shape, names, left, right = _matmul_form(a, b)
    x, y = place(site.parameter("A", a), left), place(site.parameter("B", b), right)
    za = _zero(site, site.optional(2), "P", left if len(left) > 1 else ["x", "x"], True)
    zb = _zero(site, site.optional(3), "Q", right if len(right) > 1 else ["x", "x"], False)
    site.stage(f"{place('Y', ranged(names, shape))} = sum[x] {_less(x, za)} * {_less(y, zb)}")
    return site.computed("matmul_integer", ("Y", Tensor("i32", shape)))


def _qlinear_matmul(site: Site) -> Lowered:
    a, sa, za, b, sb, zb, sy, zy = (site.given(n) for n in range(8))
    shape, names, left, right = _matmul_form(a, b)
    x, y = place(site.parameter("A", a), left), place(site.parameter("B", b), right)
    from_a = _zero(site, za, "P", left if len(left) > 1 else ["x", "x"], True)
    from_b = _zero(site, zb, "Q", right if len(right) > 1 else ["x", "x"], False)
    site.stage(f"let S[{', '.join(ranged(names, shape))}] = sum[x] {_less(x, from_a)} * {_less(y, from_b)}")

    def scale(o: Operand, name: str, at: str) -> str:
        if o.scalar is not None:
            return f"{o.dtype}({o.scalar})"
        if o.type.rank > 1:
            raise Unsupported("scales of several dimensions")
        return place(site.parameter(name, o), [] if not o.type.rank else ["0" if o.type.size == 1 else at])

    row, column = (names[-2] if len(left) > 1 and len(names) > 1 else "0"), names[-1] if names else "0"
    factor = f"{scale(sa, 'U', row)} * {scale(sb, 'V', column)} / {scale(sy, 'W', column)}"
    zero = f"{sy.dtype}({scale(zy, 'Z', column)})"
    value = f"saturate({zy.dtype}, round({sy.dtype}({place('S', names)}) * ({factor})) + {zero})"
    site.stage(f"{place('Y', ranged(names, shape))} = {value}")
    return site.computed("qlinear_matmul", ("Y", Tensor(zy.dtype, shape)))


def _einsum(site: Site) -> Lowered:
    operands = [site.given(n) for n in range(len(site.operands))]
    equation = str(site.attribute("equation", "")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise Unsupported(f"the equation {equation} for {len(operands)} operands")
    known = [t.replace("...", "", 1) for t in terms]
    made = right.replace("...", "", 1)
    if any(x not in string.ascii_letters for x in "".join((*known, made))):
        raise Unsupported(f"the equation {equation}, whose indices have to be letters")
    if len(set(made)) != len(made) or not set(made).issubset("".join(known)):
        raise Unsupported(f"the equation {equation}, whose result has an index twice, or one that no operand has")
    spread = max(
        (o.type.rank - len(t.replace("...", "")) for t, o in zip(terms, operands, strict=True) if "..." in t), default=0
    )
    spare = [x for x in string.ascii_uppercase if x not in equation][:spread]

    def full(term: str, rank: int) -> list[str]:
        if "..." not in term:
            return list(term)
        before, _, after = term.partition("...")
        count = rank - len(before) - len(after)
        return [*before, *spare[spread - count :], *after]

    written = [full(t, o.type.rank) for t, o in zip(terms, operands, strict=True)]
    every = [x for t in written for x in t]
    if arrow:
        result = full(right, len(right.replace("...", "")) + spread)
    else:
        result = [*spare, *sorted({x for x in every if every.count(x) == 1 and x not in spare})]
    sizes: dict[str, int] = {}
    for t, o in zip(written, operands, strict=True):
        if len(t) != o.type.rank:
            raise Unsupported(f"the equation {equation} for {o.type}")
        for x, size in zip(t, o.shape, strict=True):
            if sizes.setdefault(x, size) != size and 1 not in (size, sizes[x]):
                raise Unsupported(f"the equation {equation}: `{x}` has two sizes")
            sizes[x] = max(sizes[x], size)
    names: dict[str, str] = {x: f"i_{x}" for x in sizes}
    parts: list[str] = []
    for n, (t, o) in enumerate(zip(written, operands, strict=True)):
        at = ["0" if o.shape[k] == 1 and sizes[x] != 1 else names[x] for k, x in enumerate(t)]
        parts.append(place(site.parameter("ABCDEFGH"[n], o), at))
    shape = tuple(sizes[x] for x in result)
    reduced = [x for x in sizes if x not in result]
    value = " * ".join(parts)
    if reduced:
        value = f"sum[{', '.join(ranged([names[x] for x in reduced], [sizes[x] for x in reduced]))}] {value}"
    site.stage(f"{place('Y', ranged([names[x] for x in result], shape))} = {value}")
    return site.computed("einsum", ("Y", Tensor(operands[0].dtype, shape)))


# --- Fourier transforms ------------------------------------------------------------------------------------------------

_MOST_FACTORS = 1 << 25
"""The elements of the table of a transform: for longer ones, a product is no way to compute it."""


def _factors(size: int, parts: int, length: int, inverse: bool, half: bool) -> Array:
    """What the transform is a product with: [size, parts, frequencies, parts of the result].

    Its rows are the transforms of signals of `size` elements with a single 1, or 1j, in them. Half of the frequencies
    tell a transform of a real signal; the inverse of such a half is real.
    """
    if length < 1 or 2 * parts * size * length > _MOST_FACTORS:
        raise Unsupported(f"a transform of {length} elements")
    units = np.eye(size)[:, None] * np.array([1, 1j])[:parts, None]
    if inverse and half:
        return np.fft.irfft(units, length)[..., None]
    made = np.fft.ifft(units, length) if inverse else np.fft.fft(units, length)
    if half:
        made = made[..., : length // 2 + 1]
    return np.stack([made.real, made.imag], -1)


def _parts(x: Operand, half: bool) -> int:
    """How many numbers an element of a signal has. Raises Unsupported."""
    parts = x.shape[-1] if x.type.rank > 1 else 0
    if parts not in (1, 2) or not x.type.is_float or (half and parts == 2):
        raise Unsupported(f"a{' half' * half} transform of {x.type}")
    return parts


def _transform(site: Site) -> Lowered:
    x, rank = site.given(0), site.given(0).type.rank
    inverse, half = bool(site.attribute("inverse", 0)), bool(site.attribute("onesided", 0))
    parts = _parts(x, half and not inverse)
    named = site.ints(2, "the axis")
    chosen = named[0] if named else site.attribute("axis", 1 if rank == 3 else None)
    if chosen is None:
        raise Unsupported("the axis is not named, and opsets differ in what it is then")
    axis = axis_of(chosen, rank)
    if axis == rank - 1:
        raise Unsupported("a transform along the parts of an element")
    given = site.ints(1, "the length")
    length = given[0] if given else 2 * (x.shape[axis] - 1) if inverse and half else x.shape[axis]
    size = min(x.shape[axis], length)
    table = _factors(size, parts, length, inverse, half).astype(NUMPY[x.dtype])
    names = indices(rank)
    source = [*names[:axis], "x", *names[axis + 1 : -1]]
    left = place(site.parameter("X", x), [*source, "0" if parts == 1 else "p"])
    right = place(
        site.table("W", table[:, 0] if parts == 1 else table), ["x", *"p"[: parts - 1], names[axis], names[-1]]
    )
    shape = (*x.shape[:axis], table.shape[2], *x.shape[axis + 1 : -1], table.shape[3])
    reduced = f"x in {size}" + ", p" * (parts - 1)
    site.stage(f"{place('Y', ranged(names, shape))} = sum[{reduced}] {left} * {right}")
    return site.computed("transform", ("Y", Tensor(x.dtype, shape)))


def _short_transform(site: Site) -> Lowered:
    """The transforms of frames, which overlap. A constant window is part of the table."""
    x, window = site.given(0), site.optional(2)
    if x.type.rank == 2:  # as exporters write it, and runtimes read it
        x = Operand(x.name, Tensor(x.dtype, (*x.shape, 1)), x.value)
    step, given = site.ints(1, "the step"), site.ints(3, "the length of a frame")
    half, parts = bool(site.attribute("onesided", 1)), _parts(x, bool(site.attribute("onesided", 1)))
    length = given[0] if given else x.shape[1] if window is None else window.type.size
    if step is None or step[0] < 1 or x.type.rank != 3 or not 0 < length <= x.shape[1]:
        raise Unsupported(f"frames of {length} elements of {x.type}")
    if window is not None and window.shape != (length,):
        raise Unsupported(f"a window {window.type} of a frame of {length} elements")
    table = _factors(length, parts, length, False, half)
    if window is not None and window.value is not None:
        table = table * window.value.astype(np.float64)[:, None, None, None]
    table = table.astype(NUMPY[x.dtype])
    flat = site.given(0).type.rank == 2
    source = ["i", f"{scaled('j', step[0])} + x", *([] if flat else ["0" if parts == 1 else "p"])]
    left = place(site.parameter("X", site.given(0)), source)
    if window is not None and window.value is None:
        left += f" * {site.parameter('V', window)}[x]"
    right = place(site.table("W", table[:, 0] if parts == 1 else table), ["x", *"p"[: parts - 1], "k", "l"])
    shape = (x.shape[0], (x.shape[1] - length) // step[0] + 1, *table.shape[2:])
    reduced = f"x in {length}" + ", p" * (parts - 1)
    site.stage(f"{place('Y', ranged('ijkl', shape))} = sum[{reduced}] {left} * {right}")
    return site.computed("short_transform", ("Y", Tensor(x.dtype, shape)))


# --- attention ---------------------------------------------------------------------------------------------------------

ATTENTION = "softmax(Q · K) · V"
"""The operator of nodes that are recognized as an attention; ONNX has none of that name."""


@frozen
class AttentionForm:
    """How an attention is spelled: the orders in which the axes of its operands and its result are taken, as by Transpose;
    () is that in which they are.

    The first operand then has the axes …, query, number; the second …, number, key; the third …, key, output; the result
    …, query, output. `changes` are what is done to the scores before the softmax, which is along `axis`: operators, with the
    numbers of their inputs among those of the node, and -1 for the scores. They may stretch the scores. The first `scales` of
    them are of a factor of the scores, which only a number commutes with.
    """

    q: tuple[int, ...]
    k: tuple[int, ...]
    v: tuple[int, ...]
    result: tuple[int, ...]
    changes: tuple[tuple[str, tuple[int, ...]], ...]
    axis: int
    scales: int = 0


_CHANGES = {"Tanh": "tanh({})", "Mul": "{} * {}", "Add": "{} + {}", "Div": "{} / {}", "Where": "{1} if {0} else {2}"}


def attention(site: Site) -> Lowered:
    """As `std.ops.attention`: the weights of a row are divided by their sum after the product with the values."""
    form = site.attribute("form")
    if not isinstance(form, AttentionForm):
        raise Unsupported("this operator is not supported")
    orders = [o or tuple(range(site.given(n).type.rank)) for n, o in enumerate((form.q, form.k, form.v))]
    q, k, v = (tuple(site.given(n).shape[a] for a in order) for n, order in enumerate(orders))
    if min(map(len, (q, k, v))) < 2 or q[-1] != k[-2]:
        raise Unsupported(f"a product of {', '.join(str(site.given(n).type) for n in range(3))}")
    numbers = [site.given(n) for _, inputs in form.changes[: form.scales] for n in inputs if n >= 0]
    if any(o.type.size != 1 for o in numbers):
        raise Unsupported("queries or keys that are scaled by several numbers, which are computed from shapes")
    others = [site.given(n).shape for n in range(3, len(site.operands))]
    held = broadcast([(*broadcast([q[:-2], k[:-2]]), q[-2], k[-1]), *others])
    if form.axis % len(held) != len(held) - 1:
        raise Unsupported(f"a softmax along axis {form.axis} of scores {list(held)}")
    if held[-1] != v[-2]:
        raise Unsupported(f"a product of scores {list(held)} and {site.given(2).type}")
    batch, height = broadcast([held[:-2], v[:-2]]), held[-2]
    outer = ["b", "h"][-len(batch) :] if len(batch) <= 2 else indices(len(batch))
    outer = outer if batch else []
    i, j, d, c = "xyzc" if len(batch) > 2 else "ijdc"

    def at(name: str, n: int, last: tuple[str, str]) -> str:
        """The element of an operand by its indices in the order of the form."""
        shape = (q, k, v)[n]
        texts = [*stretched(shape[:-2], outer), *last]
        return place(site.parameter(name, site.given(n)), [texts[orders[n].index(a)] for a in range(len(texts))])

    scores = [*outer, i, j]
    sizes = (*batch, *held[-2:])
    row, column = (x if own == size else "0" for x, own, size in ((i, q[-2], height), (j, k[-1], held[-1])))
    product = f"sum[{d}] {at('Q', 0, (row, d))} * {at('K', 1, (d, column))}"
    site.stage(f"let {place('S', ranged(scores, sizes))} = {product}")
    total = place("S", scores)
    if form.changes:
        site.stage(f"let {place('T', ranged(scores, sizes))} = {_changed(site, form, scores)}")
        total = place("T", scores)
    rows = [*outer, i]
    site.stage(f"let {place('m', rows)} = max[{j}] {total}")
    site.stage(f"let {place('e', scores)} = exp({total} - {place('m', rows)})")
    site.stage(f"let {place('s', rows)} = sum[{j}] {place('e', scores)}")
    names, shape = [*rows, c], (*batch, height, v[-1])
    site.stage(f"let {place('U', ranged(names, shape))} = sum[{j}] {place('e', scores)} * {at('V', 2, (j, c))}")
    order = form.result or tuple(range(len(batch) + 2))
    made = tuple(shape[a] for a in order)
    left = place("O", ranged([names[a] for a in order], made))
    site.stage(f"{left} = {place('U', names)} / {place('s', rows)}")
    return site.computed("attention", ("O", Tensor(site.given(0).dtype, made)))


def _changed(site: Site, form: AttentionForm, scores: Sequence[str]) -> str:
    """The scores after the changes."""
    text = held = place("S", scores)
    for op, inputs in form.changes:
        texts: list[str] = []
        for n in inputs:
            if n < 0:
                texts.append(held)
                continue
            o = site.given(n)
            texts.append(
                o.scalar or place(site.parameter(f"M{n - 3}" if n > 3 else "M", o), stretched(o.shape, scores))
            )
        text = _CHANGES[op].format(*texts)
        held = f"({text})"
    return text


# --- rotations of pairs ------------------------------------------------------------------------------------------------

ROTATION = "rotation of pairs"
"""The operator of RotaryEmbedding whose input has four dimensions; `sequence` is that of positions."""


def rotation(site: Site) -> Lowered:
    """x · cos - y · sin and x · sin + y · cos of pairs of the first parts of a head; the others stay."""
    x, cosine, sine, at = site.given(0), site.given(1), site.given(2), site.optional(3)
    names, sequence, size = indices(4), int(site.attribute("sequence")), x.shape[3]
    batch, n, part = names[0], names[sequence], names[3]
    turned = int(site.attribute("rotary_embedding_dim", 0)) or size
    half = turned // 2
    rows = (x.shape[0], x.shape[sequence])
    wanted = (*rows, half) if at is None else (cosine.shape[0], half)
    if turned % 2 or turned > size or {cosine.shape, sine.shape} != {wanted} or (at is not None and at.shape != rows):
        raise Unsupported(f"a rotation of {turned} parts of {x.type} by {cosine.type}")
    site.parameter("X", x)
    row = [batch, n] if at is None else [onnx_index(place(site.parameter("I", at), [batch, n]), cosine.shape[0])]

    def product(of: str, factor: str, o: Operand, pair: str) -> str:
        return f"{place('X', [*names[:3], of])} * {place(site.parameter(factor, o), [*row, pair])}"

    if site.attribute("interleaved", 0):
        pair, is_first = f"{part} / 2", f"{part} % 2 == 0"
        first, second = f"{part} / 2 * 2", f"{part} / 2 * 2 + 1"
        value = f"{product(first, 'C', cosine, pair)} - {product(second, 'S', sine, pair)} if {is_first} else "
        value += f"{product(first, 'S', sine, pair)} + {product(second, 'C', cosine, pair)}"
    else:
        before, behind = f"{part} - {half}", f"{part} + {half}"
        value = f"{product(part, 'C', cosine, part)} - {product(behind, 'S', sine, part)} if {part} < {half} else "
        value += f"{product(before, 'S', sine, before)} + {product(part, 'C', cosine, before)}"
    if turned < size:
        value = f"({value}) if {part} < {turned} else {place('X', names)}"
    site.stage(f"{place('Y', ranged(names, x.shape))} = {value}")
    return site.computed("rotation", ("Y", x.type))


# --- products in groups ------------------------------------------------------------------------------------------------

GROUPED = "product in groups of rows"
"""The operator of a matrix with one of several others for each group of its rows; ONNX has none of that name."""


def grouped(site: Site) -> Lowered:
    """Each row times the matrix of its group. The third input has where each group ends; rows behind belong to the last."""
    a, b, ends = site.given(0), site.given(1), site.given(2)
    if a.type.rank != 2 or b.type.rank != 3 or a.shape[1] != b.shape[1] or ends.shape != b.shape[:1]:
        raise Unsupported(f"a product of {a.type} with {b.type} by {ends.type}")
    shape, count = (a.shape[0], b.shape[2]), b.shape[0]
    left, right = site.parameter("A", a), site.parameter("B", b)
    end = place(site.parameter("E", ends), ["e"])
    site.stage(f"let g[i in {shape[0]}] = sum[e in {count - 1}] i64({end} <= {ends.dtype}(i))")
    site.stage(f"{place('Y', ranged('ij', shape))} = sum[x] {left}[i, x] * {right}[clamp(g[i], 0, {count - 1}), x, j]")
    return site.computed("grouped_matmul", ("Y", Tensor(a.dtype, shape)))


TABLE: Mapping[str, Writer] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "MatMulInteger": _matmul_integer,
    "QLinearMatMul": _qlinear_matmul,
    "Einsum": _einsum,
    "DFT": _transform,
    "STFT": _short_transform,
}
