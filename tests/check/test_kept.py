"""What files use of the standard library is loaded once, and nothing of a file shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import pytest

import tensorc_dsl.schedule.primitives
from tensorc_dsl.base.resources import stdlib_root
from tensorc_dsl.base.source import Source
from tensorc_dsl.check import scope
from tensorc_dsl.check import scope as kept
from tensorc_dsl.check.scope import CheckedFile, Loader, load_file
from tensorc_dsl.check.uses import Found, standard

assert tensorc_dsl.schedule.primitives

TASK = "task t = matmul(M=8, N=8, K=8)\n"

TEXTS = {
    "the folder": f"use std.cpu\nuse std.ops.{{matmul}}\n{TASK}",
    "a file, then its folder": f"use std.cpu.tiling\nuse std.cpu\nuse std.ops.{{matmul}}\n{TASK}",
    "the folder, then a file of it": f"use std.cpu\nuse std.cpu.tiling\nuse std.ops.{{matmul}}\n{TASK}",
    "twice": f"use std.cpu\nuse std.cpu\nuse std.ops.{{matmul}}\n{TASK}",
    "no such path": f"use std.cpu\nuse std.gone\nuse std.ops.{{matmul}}\n{TASK}",
    "no such name": f"use std.cpu\nuse std.ops.{{matmull}}\n{TASK}",
    "nothing": TASK,
    "instructions": "use std.intrinsics\nuse std.cpu\n",
    "an instruction of its own": "use std.intrinsics\nintrinsic broken { }\n",
    "a module of its own": "use std.cpu\nmodule register_tile(b: Block) {\n    compute_inline(b)\n}\n",
    "does not parse": f"use std.cpu\nuse std.ops.{{matmul}}\nmodule\n{TASK}",
}


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What other tests loaded is not there."""
    kept._kept.clear()
    yield
    kept._kept.clear()


def same(one: CheckedFile, other: CheckedFile) -> None:
    for f in fields(CheckedFile):
        a, b = getattr(one, f.name), getattr(other, f.name)
        if f.name == "library":
            # The file itself comes first or last.
            a, b = a.files, b.files
        assert a == b, f.name
        if f.name in ("modules", "spaces"):
            assert [*a] == [*b], f.name


def loaded(text: str) -> CheckedFile:
    return load_file(Source("t.tsched", text))


@pytest.mark.parametrize("names", [[*TEXTS], [*TEXTS][::-1]], ids=["forwards", "backwards"])
def test_a_file_is_the_same_after_any_other(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    after = {name: loaded(TEXTS[name]) for name in names}
    monkeypatch.setattr(scope, "library_loader", lambda _file, _source, resolve, parsed: Loader(resolve, parsed))
    for name in names[::2]:
        same(loaded(TEXTS[name]), after[name])
    one, other = after["the folder"], after["no such name"]
    shared = one.modules.keys() & other.modules.keys()
    assert shared and all(one.modules[name] is other.modules[name] for name in shared)


def test_the_order_of_uses_decides_full_names() -> None:
    a, b = (Source(f"std/lib/{name}", f"module of_{name}(b: Block) {{\n    compute_inline(b)\n}}\n") for name in "ab")
    behind = {("std", "lib"): (a, b), ("std", "lib", "b"): (b,)}
    uses = ("use std.lib\nuse std.lib.b\n", "use std.lib.b\nuse std.lib\n")

    def resolve(path: tuple[str, ...], _user: Source) -> Found:
        return Found(".".join(path), behind[path])

    names = [[n for n in load_file(Source("t", text), resolve).modules if "." in n] for text in uses]
    assert names == [["std.lib.of_a", "std.lib.of_b"], ["std.lib.b.of_b", "std.lib.of_a"]]


def test_a_library_that_changes_is_loaded_again() -> None:
    old = loaded(TEXTS["the folder"])

    def changed(path: tuple[str, ...], user: Source) -> Found:
        found = standard(path, user)
        sources = (replace(s, text=s.text.replace("module register_tile", "module other_tile")) for s in found.sources)
        return replace(found, sources=tuple(sources))

    source = Source("t.tsched", TEXTS["the folder"])
    new = load_file(source, changed)
    assert "register_tile" in old.modules and "register_tile" not in new.modules and "other_tile" in new.modules
    same(load_file(source), old)


@pytest.mark.parametrize("path", ["cpu/default.tsched", "ops/matmul.tsched"])
def test_a_file_of_the_library_uses_others_of_it(path: str) -> None:
    loaded(TEXTS["the folder"])
    source = Source.read(stdlib_root() / path, f"std/{path}")
    after = load_file(source)
    kept._kept.clear()
    alone = load_file(source)
    same(after, alone)
    assert alone.diagnostics == ()
