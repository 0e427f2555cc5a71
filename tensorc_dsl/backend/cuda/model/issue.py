"""The instructions of a kernel by class, from its machine code, or from PTX where no assembler is at hand.

Code says how many instructions a loop has, and not how often it runs. Lowered code says how often memory is accessed, and how
many products there are; so each loop runs as often as explains these best (non-negative least squares), at least as often as
the one around it.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from tensorc_dsl.backend.cuda.model.counts import ACCESSES, CLASSES, FLOATS, INTEGERS, OTHERS, SPECIAL, Counted
from tensorc_dsl.backend.protocol import CodeLoop

_SASS = {
    SPECIAL: r"(?:MUFU|F2F|F2I|I2F|POPC|FLO|BREV|DADD|DMUL|DFMA)\b",
    ACCESSES: r"(?:LDG|STG|LDS|STS|LDSM|STSM|LDGSTS|ATOM|ATOMS|ATOMG|RED|REDG|SHFL|LDL|STL|UTMA\w+|SYNCS|LD|ST)\b",
    FLOATS: r"(?:FFMA|FADD|FMUL|HFMA2|HADD2|HMUL2)\b",
    INTEGERS: r"(?:IMAD|V?IADD\d?|LOP3|LEA|SHF|[IF]SETP|F?SEL|FMNMX|V?IMNMX|PRMT|MOV|PLOP3|F2FP|SGXT|BMSK|IABS|U[A-Z]\w+)\b",
}
_PTX = {
    SPECIAL: r"(?:ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh|popc|clz)\.|\w+\.(?:\w+\.)*f64\b|cvt\.(?:\w+\.)*[suf]\d+\.(?:f\d|bf)",
    ACCESSES: r"(?:ld|st|ldmatrix|stmatrix|atom|red|shfl|mbarrier|cp\.async\.c[ag]|cp\.async\.bulk\.tensor)\b(?!\.param)",
    FLOATS: r"(?:fma|add|sub|mul)\.(?:\w+\.)*(?:f32|f16x2|f16|bf16x2|bf16)\b",
    INTEGERS: r"(?:add|sub|mul|mad|and|or|xor|not|shl|shr|bfe|bfi|setp|selp|min|max|abs|neg|prmt|shf|lop3|cvt)\.",
}
"""What begins instructions of each class, the first one that fits."""

_REQUESTS = {
    "global load": r"LDG\b|ld\.global",
    "global store": r"STG\b|st\.global",
    "shared load": r"LDS\b|ld\.shared",
    "shared store": r"STS\b|st\.shared",
    "copy": r"LDGSTS\b|cp\.async\.c[ag]",
    "fragment": r"LDSM\b|ldmatrix",
    "product": r"[HIQD]MMA\b|mma\.sync",
    "group": r"[HIQ]GMMA\b|wgmma\.mma_async",
    "shuffle": r"SHFL\b|shfl",
    "tile": r"UTMALDG\b|cp\.async\.bulk\.tensor\S*\.shared::cluster",
}

_WORDS = {
    name: re.compile("|".join(f"(?P<{of}>{words})" for of, words in table.items()))
    for name, table in (("sass", _SASS), ("ptx", _PTX))
}
_ASKED = [(kind, re.compile(words)) for kind, words in _REQUESTS.items()]


@dataclass
class _Text:
    """The instructions of a kernel in order, where labels are, the jumps from an instruction to a label, and the instructions
    behind which the next one does not run."""

    own: list[str] = field(default_factory=list[str])
    labels: dict[str, int] = field(default_factory=dict[str, int])
    jumps: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    ends: set[int] = field(default_factory=set[int])


def loops_in_sass(text: str) -> dict[str, tuple[CodeLoop, ...]]:
    """The loops of each kernel in the output of nvdisasm; the first one is what is in none."""
    kernels: dict[str, _Text] = {}
    now = _Text()
    for line in text.splitlines():
        if found := re.search(r"\.section\s+\.text\.(\w+)", line):
            now = kernels[found[1]] = _Text()
        elif found := re.match(r"(\.L_\w+):", line):
            now.labels[found[1]] = len(now.own)
        elif found := re.search(r"/\*[0-9a-f]+\*/\s+(@!?U?P\w+ )?([A-Z][\w.]*.*?) ?;", line):
            if jump := re.search(r"^BRA\b.*`\((\.L_\w+)\)", found[2]):
                now.jumps.append((len(now.own), jump[1]))
            # A jump may have its predicate among its operands, and one of a warp whose lanes have parted goes on else.
            if not found[1] and re.match(r"(?:EXIT|RET|BRA(?!\.(?:DIV|CONV)))(?![^`]*\bU?P\d)", found[2]):
                now.ends.add(len(now.own))
            now.own.append("NOP" if found[1] == "@!PT " else found[2])  # loads that never happen, before narrow copies
    return {name: tuple(_loops(t, "sass")) for name, t in kernels.items()}


def loops_in_ptx(text: str) -> dict[str, tuple[CodeLoop, ...]]:
    """The loops of each kernel in PTX; the first one is what is in none."""
    kernels: dict[str, _Text] = {}
    now = _Text()
    for line in map(str.strip, text.splitlines()):
        if found := re.search(r"\.entry (\w+)", line):
            now = kernels[found[1]] = _Text()
        elif found := re.match(r"(\$\w+):", line):
            now.labels[found[1]] = len(now.own)
        elif not line.startswith((".", "//")):
            for one in filter(None, (re.sub(r"^[{}\s]+", "", x) for x in line.split(";"))):
                words = re.sub(r"^(?:\w+:\s*)?(?:@!?%?\w+\s+)?", "", one)
                if jump := re.match(r"bra\S*\s+(\$\w+)", words):
                    now.jumps.append((len(now.own), jump[1]))
                if "@" not in one and (jump or re.match(r"(?:ret|exit)\b", words)):
                    now.ends.add(len(now.own))
                now.own.append(words)
    return {name: tuple(_loops(t, "ptx")) for name, t in kernels.items()}


def _loops(t: _Text, kind: str) -> Iterator[CodeLoop]:
    """The instructions by their loops. Where they stand says nothing: a wait of a loop may be behind the kernel. What no jump
    leads to does not run: functions have the divisions of numbers that are no normal ones."""
    behind = {at + 1 for at in (*t.ends, *(at for at, _ in t.jumps))}
    starts = sorted(at for at in {0, *t.labels.values(), *behind} if at < len(t.own))
    ways: dict[int, list[int]] = {a: [b] for a, b in pairwise(starts) if b - 1 not in t.ends}
    for at, label in t.jumps:
        if t.labels.get(label, len(t.own)) < len(t.own):
            ways.setdefault(starts[bisect(starts, at) - 1], []).append(t.labels[label])
    spans = [(-1, frozenset(_reached(0, ways))), *_nested(frozenset(_reached(0, ways)), ways, 0)]
    classes = [Counter[str]() for _ in spans]
    asked = [Counter[str]() for _ in spans]
    for start, end in zip(starts, [*starts[1:], len(t.own)], strict=True):
        n = max((n for n, (_, inside) in enumerate(spans) if start in inside), default=-1)
        for words in t.own[start:end] if n >= 0 else ():
            found = _WORDS[kind].match(words)
            if found or kind == "sass":  # of PTX, moves and conversions of addresses are no instructions
                classes[n][found.lastgroup or OTHERS if found else OTHERS] += 1
            asked[n].update(name for name, pattern in _ASKED if pattern.match(words))
    for (around, _), own, requests in zip(spans, classes, asked, strict=True):
        yield CodeLoop(around, own, requests)


def _reached(first: int, ways: Mapping[int, Sequence[int]]) -> set[int]:
    """What ways lead to, with where they begin."""
    found, left = {first}, [first]
    while left:
        more = set(ways.get(left.pop(), ())) - found
        found |= more
        left += more
    return found


def _nested(
    inside: frozenset[int], ways: Mapping[int, Sequence[int]], around: int, number: int = 1
) -> list[tuple[int, frozenset[int]]]:
    """The loops among these, each with the number of the one around it, which comes before it: what all ways lead back to is
    one, and without the ways to where it begins the same holds of those inside it (Steensgaard, 1993)."""
    from scipy.sparse import coo_matrix  # late imports: they take as long as checking a long text
    from scipy.sparse.csgraph import connected_components

    places = sorted(inside)
    at = {place: n for n, place in enumerate(places)}
    edges = [(at[a], at[b]) for a in places for b in ways.get(a, ()) if b in at]
    ends = np.array(edges, np.int64).reshape(-1, 2)
    graph = coo_matrix((np.ones(len(edges)), (ends[:, 0], ends[:, 1])), (len(places), len(places)))
    _, parts = connected_components(graph, directed=True, connection="strong")
    out: list[tuple[int, frozenset[int]]] = []
    turning = {int(parts[a]) for a, b in edges if parts[a] == parts[b]}
    for part in sorted(turning, key=lambda part: int(np.argmax(parts == part))):
        own = frozenset(place for n, place in enumerate(places) if parts[n] == part)
        entries = {b for a in places for b in ways.get(a, ()) if b in own and a not in own} or {min(own)}
        out.append((around, own))
        less = {a: [b for b in ways.get(a, ()) if b not in entries] for a in own}
        out += _nested(own, less, number + len(out) - 1, number + len(out))
    return out


FEWEST = 0.01
"""How much few instructions count beside what explains the requests."""

MOST_OFF = 0.5
"""How far off what loops explain may be, as a share of all requests: else the count of lowered code stands."""


def issued_instructions(c: Counted, loops: Sequence[CodeLoop], warps: float) -> Mapping[str, float]:
    """The instructions of all `warps` of a kernel by class, by its code; by the count where the code does not explain it."""
    from scipy.optimize import nnls  # a late import: it takes as long as checking a long text

    kinds = [kind for kind, n in c.requests.items() if n and any(x.requests.get(kind) for x in loops)]
    if not kinds:
        return c.instructions
    inside = np.zeros((len(loops), len(loops)))  # which loops run as often as a loop does, at least
    for n, x in enumerate(loops):
        inside[n, n] = 1.0
        if x.around >= 0:
            inside[n] += inside[x.around]
    has = np.array([[x.requests.get(kind, 0) / c.requests[kind] for x in loops] for kind in kinds])
    first = np.eye(1, len(loops)) / max(warps, 1.0)  # what is in no loop runs once, but for other roles
    # Where loops explain requests equally well, those with the fewest instructions run.
    own = np.array([[sum(x.instructions.values()) for x in loops]]) / max(c.issued, 1.0)
    rows = np.vstack([has @ inside, first, FEWEST * own @ inside])
    more, _ = nnls(rows, np.array([*np.ones(len(kinds) + 1), 0.0]))
    often = inside @ more
    if float(np.abs(has @ often - 1).max()) > MOST_OFF:
        return c.instructions
    return {of: float(sum(n * x.instructions.get(of, 0) for n, x in zip(often, loops, strict=True))) for of in CLASSES}
