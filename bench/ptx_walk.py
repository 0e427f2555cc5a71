"""What a warp does by its PTX: how often each line runs, which memory it touches, and how long it takes alone.

The integers of a warp are computed, so loops, guards and addresses are those of the kernel; numbers of arrays are zeros, and
what waits for other warps goes on at once. Lanes that part meet again where all ways lead to. No code of the compiler is
used: `bench.gpu_ranking` judges the compiler's model of time by it.

Time is that of one warp with a multiprocessor for itself. Instructions of a basic block start when their operands are there,
as an assembler that orders them well would have it, and blocks follow each other. Copies and products that run beside the
warp are waited for where PTX says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

LANES, SECTOR, BANKS, WORD, LINE = 32, 32, 32, 4, 128

Numbers = NDArray[np.int64]
Lanes = NDArray[np.bool_]

MOST = 3_000_000
"""The instructions after which a warp is taken for one that does not end."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """Cycles until a result is there: of memory, of a hit in the second-level cache, of shared memory or another lane, of
    arithmetic, of a function of the special unit, of a product of a warp, and of a barrier."""

    memory: float = 550.0
    cache: float = 270.0
    shared: float = 25.0
    arithmetic: float = 4.5
    special: float = 20.0
    product: float = 33.0
    barrier: float = 20.0


@dataclass(frozen=True, slots=True)
class Statement:
    """An instruction: the line it is in, its opcode and the parts of it, its operands, and the predicate that it is under."""

    line: int
    opcode: tuple[str, ...]
    operands: tuple[str, ...]
    guard: str = ""
    unless: bool = False


@dataclass
class Block:
    """Statements that run one after the other; the label that they are at."""

    label: str
    body: list[Statement] = field(default_factory=list[Statement])


@dataclass
class Kernel:
    """A kernel as its text says: its blocks in order and the names of its parameters."""

    name: str
    params: tuple[str, ...]
    blocks: list[Block]

    @cached_property
    def starts(self) -> dict[str, int]:
        """The blocks at labels."""
        return {b.label: n for n, b in enumerate(self.blocks) if b.label}

    @cached_property
    def meets(self) -> list[int]:
        """Of each block the first that all ways from it lead to (its immediate post-dominator), or the end."""
        end = len(self.blocks)
        after: list[set[int]] = []
        for n, b in enumerate(self.blocks):
            last = b.body[-1] if b.body else None
            jumps = last is not None and last.opcode[0] == "bra"
            ways = {end} if last is not None and last.opcode[0] == "ret" else set[int]()
            if jumps and last is not None:
                ways.add(self.starts[last.operands[0]])
            if not ways or (last is not None and last.guard):
                ways.add(n + 1)
            after.append(ways)
        behind = [set(range(end + 1)) for _ in range(end)] + [{end}]
        changed = True
        while changed:
            changed = False
            for n in reversed(range(end)):
                new = {n} | set[int].intersection(*(behind[w] for w in after[n]))
                changed |= new != behind[n]
                behind[n] = new
        return [max(behind[n] - {n}, key=lambda w: len(behind[w])) for n in range(end)]

    @property
    def lines(self) -> dict[int, int]:
        """The block of each line."""
        return {s.line: n for n, b in enumerate(self.blocks) for s in b.body}


@dataclass
class Walked:
    """What a warp did: how often each line ran, bytes that TMA moved, sectors and lines of global memory that its accesses
    touch, passes over shared memory, multiplications of tensor cores, and the cycles that it takes alone."""

    runs: Counter[int] = field(default_factory=Counter[int])
    tma_bytes: float = 0.0
    sectors: float = 0.0
    lines: float = 0.0
    passes: float = 0.0
    products: Counter[str] = field(default_factory=Counter[str])
    cycles: float = 0.0


_PART = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")


def kernels_of(text: str) -> list[Kernel]:
    """The kernels of a text, their lines numbered from 1."""
    out: list[Kernel] = []
    inside, assembly = False, False
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if found := re.search(r"\.entry (\w+)", line):
            out.append(Kernel(found[1], (), [Block("")]))
            inside = False
        elif found := re.match(r"\.param .*?(\w+)(?:\[\d+\])?,?$", line):
            out[-1].params += (found[1],)
        elif line == "{":
            inside = True
        elif line == "// begin inline asm":
            assembly = True
        elif line == "// end inline asm":
            assembly = False
        elif inside and (found := re.match(r"(\$\w+):", line)):
            out[-1].blocks.append(Block(found[1]))
        elif inside and line and not line.startswith((".", "//")) and line != "}":
            words = re.sub(r"^\{|\}$", "", line) if assembly else line
            for one in words.split(";"):
                one = re.sub(r"^\s*(?:\w+:)?\s*", "", one) if assembly else one.strip()
                if one and not one.startswith((".", "}")):
                    _add(out[-1].blocks, _statement(number, one))
    return out


def _add(blocks: list[Block], s: Statement) -> None:
    blocks[-1].body.append(s)
    if s.opcode[0] in ("bra", "ret") and (s.opcode[0] == "ret" or s.operands[0].startswith("$")):
        blocks.append(Block(""))


def _statement(line: int, text: str) -> Statement:
    guard, unless = "", False
    if found := re.match(r"@(!?)(%?\w+)\s+", text):
        guard, unless, text = found[2], bool(found[1]), text[found.end() :]
    opcode, _, rest = text.partition(" ") if "\t" not in text else text.partition("\t")
    return Statement(
        line, tuple(opcode.strip().split(".")), tuple(x.strip() for x in _PART.findall(rest)), guard, unless
    )


def _signed(x: Numbers, kind: str) -> Numbers:
    if kind == "s32":
        return ((x & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
    return x & 0xFFFFFFFF if kind in ("u32", "b32") else x & 0xFFFF if kind in ("u16", "b16") else x


_BINARY: Mapping[str, Callable[[Numbers, Numbers], Numbers]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
    "div": lambda a, b: a // np.where(b == 0, 1, b),
    "rem": lambda a, b: a % np.where(b == 0, 1, b),
    "shl": lambda a, b: a << np.clip(b, 0, 63),
    "shr": lambda a, b: a >> np.clip(b, 0, 63),
}

_COMPARED: Mapping[str, Callable[[Numbers, Numbers], Lanes]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}

_FLOAT = re.compile(r"^(?:f16|f32|f64|bf16|f16x2|bf16x2|tf32)$")
_ZERO, _ONE = np.zeros(LANES, np.int64), np.ones(LANES, np.int64)
_SPECIAL = frozenset(("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh"))


def _dynamic(s: Statement) -> bool:
    """Whether what it does hangs on numbers of arrays, which are zeros here."""
    return any(_FLOAT.match(x) for x in s.opcode[1:])


@dataclass
class Warp:
    """A warp of a kernel: its registers, and when they are ready."""

    kernel: Kernel
    first: int
    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    threads: int
    latencies: Latencies
    rates: Mapping[str, float]
    boxes: Mapping[str, int]
    """The bytes of a tile of each map, by the name of its parameter."""
    values: dict[str, Numbers] = field(default_factory=dict[str, Numbers])
    ready: dict[str, float] = field(default_factory=dict[str, float])
    did: Walked = field(default_factory=Walked)

    def __post_init__(self) -> None:
        lanes = np.arange(LANES, dtype=np.int64)
        of_grid = {f"%{what}.{axis}": n * _ONE for what, three in (("ctaid", self.block), ("nctaid", self.grid))
                   for axis, n in zip("xyz", three, strict=True)}  # fmt: skip
        self.values = {"%tid.x": self.first + lanes, "%ntid.x": self.threads * _ONE, "%laneid": lanes, **of_grid,
                       "%tid.y": _ZERO, "%tid.z": _ZERO, "shared": _ZERO}  # fmt: skip
        for n, name in enumerate(self.kernel.params):
            self.values[name] = (n + 1 << 40) * _ONE
        self._floor = self._end = self._arrived = 0.0
        self._copies, self._groups = 0.0, list[float]()
        self._tensor, self._started, self._products = 0.0, 0.0, list[float]()
        self._released: dict[int, float] = {}
        self._coming: dict[int, list[float]] = {}
        self._waited = -1
        self._seen: set[int] = set()

    def walk(self) -> Walked:
        """Run it. Raises RuntimeError if it does not end."""
        starts, meets = self.kernel.starts, self.kernel.meets
        end, count = len(self.kernel.blocks), 0
        # The lanes of the last entry run until they are where those below it wait for them.
        waiting = [(0, end, self.first + np.arange(LANES) < self.threads)]
        while waiting:
            now, until, active = waiting.pop()
            if now in (until, end) or not active.any():
                continue
            body = self.kernel.blocks[now].body
            count += len(body)
            if count > MOST:
                raise RuntimeError(f"{self.kernel.name}: a warp does not end")
            begun, self._end = self._floor, self._floor
            to, parted, left = now + 1, None, active
            for s in body:
                mask = active
                if s.guard:
                    mask = active & ((self.values.get(s.guard, _ZERO) != 0) != s.unless)
                if s.opcode[0] == "bra":
                    self.did.runs[s.line] += 1
                    self._end = max(self._end, self._when(s.guard))
                    if s.operands[0] in starts and mask.any():
                        if (mask == active).all():
                            to = starts[s.operands[0]]
                        else:
                            parted = starts[s.operands[0]], mask
                elif s.opcode[0] in ("ret", "exit"):
                    left = active & ~mask
                elif mask.any() or s.guard:
                    self.did.runs[s.line] += 1
                    if mask.any():
                        self._do(s, mask)
            if parted:
                meet = meets[now]
                waiting += [(meet, until, left), (to, meet, left & ~parted[1]), (parted[0], meet, parted[1])]
            else:
                waiting.append((to, until, left))
            self._floor = max(self._end, begun + len(body))
        self.did.cycles = self._floor
        return self.did

    def _when(self, *names: str) -> float:
        return max((self.ready.get(n, 0.0) for n in names if n), default=0.0)

    def _value(self, text: str) -> Numbers:
        if text in self.values:
            return self.values[text]
        if re.fullmatch(r"-?\d+U?|-?0x[0-9a-fA-F]+U?", text):
            found = np.full(LANES, int(text.rstrip("U"), 0), np.int64)
            self.values[text] = found
            return found
        return _ZERO

    def _address(self, text: str) -> Numbers:
        base, _, more = text.strip("[]").partition("+")
        return self._value(base.strip()) + (int(more, 0) if more else 0)

    def _set(self, name: str, value: Numbers, mask: Lanes, when: float) -> None:
        if not mask.all():
            value = np.where(mask, value, self.values.get(name, _ZERO))
        self.values[name] = value
        self.ready[name] = when

    def _do(self, s: Statement, mask: Lanes) -> None:
        op, words = s.opcode[0], s.operands
        names = [x for w in words[1:] for x in re.findall(r"%?[A-Za-z_$][\w.]*", w)] + [s.guard]
        at = max(self._floor, self._when(*names))
        match op:
            case "ld" | "ldmatrix" | "atom" | "st" | "red":
                self._access(s, mask, at)
            case "cp":
                self._copy(s, mask, at)
            case "wgmma" | "mma":
                self._multiply(s, at)
            case "bar" | "barrier":
                if s.opcode[1] != "warp":
                    self._floor = self._end = max(self._end, self._floor) + self.latencies.barrier
            case "mbarrier":
                self._mbarrier(s, mask)
            case "shfl":
                target = words[0].partition("|")[0]
                self._set(target, self._value(words[1]), mask, at + self.latencies.shared)
                self._end = max(self._end, at)
            case "fence" | "membar" | "setmaxnreg" | "elect" | "nanosleep" | "griddepcontrol" | "prefetch":
                pass
            case _:
                self._compute(s, mask, at)

    def _compute(self, s: Statement, mask: Lanes, at: float) -> None:
        op, words = s.opcode[0], s.operands
        latency = self.latencies.special if op in _SPECIAL else self.latencies.arithmetic
        target, args = words[0], words[1:]
        self._end = max(self._end, at)
        if target.startswith("{"):  # an unpacked value
            for name in target.strip("{}").split(","):
                self._set(name.strip(), _ZERO, mask, at + latency)
            return
        kind = s.opcode[-1]
        value = _ZERO
        if op == "mov" or op == "cvta":
            value = _ZERO if args[0].startswith("{") else self._value(args[0])
        elif op == "setp":
            if not _dynamic(s):
                a, b = (_signed(self._value(x), kind) for x in args[:2])
                value = _COMPARED[s.opcode[1]](a, b).astype(np.int64)
        elif op == "selp":
            if not _dynamic(s):
                value = np.where(self._value(args[2]) != 0, self._value(args[0]), self._value(args[1]))
        elif op == "cvt":
            if not _dynamic(s):
                value = _signed(self._value(args[0]), s.opcode[-1])
                value = _signed(value, s.opcode[-2]) if s.opcode[-2] != s.opcode[-1] else value
        elif op == "not":
            value = (self._value(args[0]) == 0).astype(np.int64) if kind == "pred" else ~self._value(args[0])
        elif op == "neg":
            value = -self._value(args[0])
        elif op == "abs":
            value = np.abs(self._value(args[0]))
        elif op == "bfe":
            value = (self._value(args[0]) >> self._value(args[1])) & ((1 << self._value(args[2])) - 1)
        elif op in ("mad", "fma"):
            if not _dynamic(s):
                value = self._value(args[0]) * self._value(args[1]) + self._value(args[2])
        elif op in _BINARY and not _dynamic(s) and not (op == "mul" and "hi" in s.opcode):
            a, b = self._value(args[0]), self._value(args[1])
            if op in ("shr", "div", "rem", "min", "max") or (op == "mul" and "wide" in s.opcode):
                a = _signed(a, kind)
                b = b if op == "shr" else _signed(b, kind)
            value = _BINARY[op](a, b)
            if kind in ("b32", "u32", "s32") and "wide" not in s.opcode:
                value = _signed(value, "s32" if kind == "s32" else "u32")
        elif op == "mul" and "hi" in s.opcode and not _dynamic(s):
            wide = 32 if kind.endswith("32") else 64
            a, b = self._value(args[0]), self._value(args[1])
            value = np.array([int(x) * int(y) >> wide for x, y in zip(a, b, strict=True)], np.int64)
        self._set(target, value, mask, at + latency)

    def _access(self, s: Statement, mask: Lanes, at: float) -> None:
        op, words = s.opcode[0], s.operands
        where = next((w for w in words if w.startswith("[")), "")
        if "param" in s.opcode:
            self._set(words[0], self._value(where.strip("[]").partition("+")[0]), mask, at)
            return
        stores = op in ("st", "red")
        bits = next((int(x[1:]) for x in reversed(s.opcode) if re.fullmatch(r"[bfsu]\d+", x)), 32)
        wide = next((int(x[1:]) for x in s.opcode if re.fullmatch(r"v\d", x)), 1)
        size = 16 if op == "ldmatrix" else bits // 8 * wide
        address = self._address(where)
        if op == "ldmatrix":
            rows = 8 * next((int(x[1:]) for x in s.opcode if re.fullmatch(r"x\d", x)), 1)
            mask = mask & (np.arange(LANES) < rows)
        shared = any(x.startswith("shared") for x in s.opcode) or op == "ldmatrix"
        if "local" in s.opcode:
            shared = True
        if shared:
            self.did.passes += passes(address, size, mask)
        else:
            self._touch(address, size, mask)
        if stores:
            self._end = max(self._end, at)
            return
        latency = self.latencies.shared if shared else self._of_memory(address, size, mask)
        for name in words[0].strip("{}").split(","):
            self._set(name.strip(), _ZERO, mask, at + latency)
        self._end = max(self._end, at)

    def _touch(self, address: Numbers, size: int, mask: Lanes) -> None:
        found = touched(address, size, mask)
        self.did.sectors += len(found)
        self.did.lines += len({x * SECTOR // LINE for x in found})

    def _of_memory(self, address: Numbers, size: int, mask: Lanes) -> float:
        """The latency of a load: what this warp has touched before is near."""
        lines = {int(x) // 4 for x in touched(address, size, mask)}
        new = not lines <= self._seen
        self._seen |= lines
        return self.latencies.memory if new else self.latencies.shared * 1.5

    def _copy(self, s: Statement, mask: Lanes, at: float) -> None:
        rest, words = s.opcode[2:], s.operands
        if rest[0] == "bulk":
            if "commit_group" in rest or "wait_group" in rest or "tensor" not in rest:
                return
            stores = rest[3] == "global"
            size = self._tile(words[0] if stores else words[1])  # once, if it is loaded for several blocks
            self.did.tma_bytes += size if stores else 0
            self.did.sectors += size / SECTOR
            return
        if rest[0] == "commit_group":
            self._groups.append(self._copies)
        elif rest[0] == "wait_group":
            groups = int(words[0])
            done = self._groups[: len(self._groups) - groups]
            self._floor = self._end = max([self._end, *done])
        elif rest[0] == "wait_all":
            self._floor = self._end = max(self._end, self._copies)
        else:
            size = int(words[2])
            source, target = self._address(words[1]), self._address(words[0])
            self._touch(source, size, mask)
            self.did.passes += passes(target, size, mask)
            self._copies = max(
                self._copies, max(at, self._when(*re.findall(r"%\w+", words[0]))) + self.latencies.memory
            )

    def _tile(self, operand: str) -> int:
        name = operand.strip("[]").partition(",")[0].strip()
        found = int(self._value(name)[0])
        number = (found >> 40) - 1
        return self.boxes[self.kernel.params[number]]

    def _mbarrier(self, s: Statement, mask: Lanes) -> None:
        what, words = s.opcode[1], s.operands
        where = next((w for w in words if w.startswith("[")), "[0]")
        lane = int(np.argmax(mask))
        address = int(self._address(where)[lane])
        if what == "arrive" and "expect_tx" in s.opcode:
            size = int(self._value(words[-1])[lane])
            self.did.tma_bytes += size
            self._coming.setdefault(address, []).append(max(self._end, self._floor) + self.latencies.memory)
        elif what == "arrive":
            self._released[self._waited] = max(self._end, self._floor)
        elif what in ("try_wait", "test_wait"):
            self.values[words[0]] = _ONE
            if coming := self._coming.get(address):
                done = coming.pop(0)
            else:  # another warp starts it, as soon as this one has read what was there before
                done = self._released.get(address, 0.0) + self.latencies.memory
            self._waited = address
            self._floor = self._end = max(self._end, done)

    def _multiply(self, s: Statement, at: float) -> None:
        if s.opcode[1] in ("fence", "commit_group"):
            if s.opcode[1] == "commit_group":
                self._products.append(self._started)
            return
        if s.opcode[1] == "wait_group":
            done = self._products[: len(self._products) - int(s.operands[0])]
            self._floor = self._end = max([self._end, *done])
            return
        shape = next(x for x in s.opcode if re.fullmatch(r"m\d+n\d+k\d+", x))
        kinds = [x for x in s.opcode if re.fullmatch(r"b?f16|tf32|e\dm\d|[su]8|f64|f32|s32", x)]
        kind = kinds[2] if s.opcode[0] == "mma" else kinds[1]
        group = s.opcode[0] == "wgmma"
        rows, columns, depth = (int(x) for x in re.findall(r"\d+", shape))
        count = rows * columns * depth / (4 if group else 1)
        self.did.products[("group " if group else "") + kind] += int(count)
        rate = self.rates.get(kind, self.rates["f16"]) / 4  # of the part of a multiprocessor that has this warp
        if group:  # it reads shared memory itself, the left factor unless that is in registers
            read = columns + (0 if s.operands[1].startswith("{") else rows)
            self.did.passes += read * depth * (1 if "e" in kind else 2) / LINE / 4
            self._started = self._tensor = max(at, self._tensor) + count / rate
            self._started += self.latencies.product
            self._end = max(self._end, at)
            return
        begin = max(at, self._tensor)
        self._tensor = begin + count / rate
        for name in s.operands[0].strip("{}").split(","):
            self.ready[name.strip()] = begin + self.latencies.product
        self._end = max(self._end, begin)


def touched(address: Numbers, size: int, mask: Lanes) -> set[int]:
    """The sectors that lanes access."""
    mine = address[mask]
    return {int(x) for start in range(0, size, SECTOR) for x in (mine + start) // SECTOR} | {
        int(x) for x in (mine + size - 1) // SECTOR
    }


def passes(address: Numbers, size: int, mask: Lanes) -> int:
    """How often the banks of shared memory have to be passed over: the most words in one bank, of as many lanes at a time as
    a line serves."""
    together = max(1, min(LANES, LINE // max(size, WORD)))
    total = 0
    for start in range(0, LANES, together):
        mine = address[start : start + together][mask[start : start + together]]
        words = {int(x) // WORD + n for x in mine for n in range(max(1, size // WORD))}
        if words:
            total += max(Counter(w % BANKS for w in words).values())
    return total


def walk(
    kernel: Kernel,
    threads: int,
    grid: tuple[int, int, int],
    rates: Mapping[str, float],
    boxes: Mapping[str, int],
    latencies: Latencies | None = None,
    blocks: int = 3,
    warps: int = 12,
) -> tuple[Walked, float]:
    """What an average block does, all its warps together, from some of them; and the cycles that the longest warp takes."""
    every = -(-threads // LANES)
    chosen: Sequence[Any] = sorted(
        {round(n * (every - 1) / max(1, min(every, warps) - 1)) for n in range(min(every, warps))}
    )
    count = prod(grid)
    places = sorted({round(n * (count - 1) / max(1, blocks - 1)) for n in range(blocks)})
    total, longest = Walked(), 0.0
    scale = every / len(chosen) / len(places)
    for place in places:
        where = (place % grid[0], place // grid[0] % grid[1], place // (grid[0] * grid[1]))
        most = 0.0
        for w in chosen:
            did = Warp(kernel, w * LANES, where, grid, threads, latencies or Latencies(), rates, boxes).walk()
            most = max(most, did.cycles)
            for line, n in did.runs.items():
                total.runs[line] += n * scale  # pyright: ignore[reportArgumentType]
            for kind, n in did.products.items():
                total.products[kind] += n * scale  # pyright: ignore[reportArgumentType]
            total.tma_bytes += did.tma_bytes * scale
            total.sectors += did.sectors * scale
            total.lines += did.lines * scale
            total.passes += did.passes * scale
        longest += most / len(places)
    return total, longest
