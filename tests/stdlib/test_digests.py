"""Nothing is wrong in the library's files, so those with the texts that were checked are not checked again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from docs.generate.library import SUMS, sums
from tensorc_dsl.base.diagnostic import Diagnostic, TschedError
from tensorc_dsl.base.resources import stdlib_root
from tensorc_dsl.base.source import Source, Span
from tensorc_dsl.check import items, scope
from tensorc_dsl.check.items import Memory
from tensorc_dsl.check.scope import CheckedFile, load_file
from tensorc_dsl.check.uses import Found, standard
from tensorc_dsl.ir import intrinsics
from tensorc_dsl.ir.program import Buffer, Intrinsic, Layout
from tensorc_dsl.ir.target import TargetKind
from tensorc_dsl.syntax import tree as t

FILES = sorted(stdlib_root().rglob("*.tsched"))


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of the library is loaded yet."""
    monkeypatch.setattr(scope, "_kept", {})


def _name(path: Path) -> str:
    return f"std/{path.relative_to(stdlib_root()).as_posix()}"


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_nothing_is_wrong_in_a_file(path: Path) -> None:
    """A file that is loaded itself is checked, whatever its digest."""
    checked = load_file(Source.read(path, _name(path)))
    assert checked.diagnostics == ()


def test_a_file_that_is_loaded_itself_is_checked() -> None:
    path = stdlib_root() / "cpu" / "inline.tsched"
    source = Source.read(path, _name(path))
    assert items.is_checked(source)
    wrong = Source(source.name, source.text + "\nmodule wrong(l: Loop) {\n    nothing(l)\n}\n")
    assert not items.is_checked(wrong)
    assert [d.code for d in load_file(wrong).errors] == ["E0223"]


USES = """\
use std.cpu.default
use std.ops.{matmul}

task one = matmul(M=8, N=8, K=8)
"""


def _loaded(text: str) -> CheckedFile:
    return load_file(Source("f.tsched", text))


def test_a_check_that_is_left_out_changes_nothing(forgotten: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    plain = Memory.findings

    def findings(self: Memory, item: t.Item, *rest: Any) -> object:
        asked.append(str(item.span.source.name))
        return plain(self, item, *rest)

    monkeypatch.setattr(Memory, "findings", findings)
    quick = _loaded(USES)
    assert set(asked) == {"f.tsched"}
    asked.clear()
    scope._kept.clear()
    monkeypatch.setattr(items, "stdlib_digests", dict)
    whole = _loaded(USES)
    assert len({*asked}) > 20
    assert quick == whole


def test_instructions_that_are_only_used_are_not_compared_again(
    forgotten: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of other texts are, and those of a file that is loaded itself."""
    compared: list[str] = []
    kind_of, collision = intrinsics.kind_of, intrinsics._collision

    def counting(name: str) -> TargetKind:
        kind = kind_of(name)

        def counted(i: Intrinsic, code: str, span: Span) -> list[Diagnostic]:
            compared.append(i.name)
            return list(kind.faults(i, code, span)) if kind.faults else []

        return replace(kind, faults=counted)

    def counted_too(layout: Layout, b: Buffer) -> object:
        compared.append(b.name)
        return collision(layout, b)

    monkeypatch.setattr(intrinsics, "kind_of", counting)
    monkeypatch.setattr(intrinsics, "_collision", counted_too)
    text = "use std.intrinsics.cuda\nuse std.intrinsics.x86\n"
    quick = _loaded(text)
    assert compared == [] and len(quick.instructions) > 20
    scope._kept.clear()
    monkeypatch.setattr(items, "stdlib_digests", dict)
    whole = _loaded(text)
    assert len(compared) > 20
    assert quick == whole
    monkeypatch.undo()
    monkeypatch.setattr(intrinsics, "kind_of", counting)
    compared.clear()
    path = stdlib_root() / "intrinsics" / "cuda.tsched"
    load_file(Source.read(path, _name(path)))
    assert len(compared) > 20


def test_what_uses_a_changed_file_is_checked(forgotten: None) -> None:
    """A file with a known text may call what a file of another text no longer has."""
    used = "std/cpu/inline.tsched"
    name = next(line.split("(")[0].split()[1] for line in _text(used).splitlines() if line.startswith("module "))

    def resolve(path: tuple[str, ...], user: Source) -> Found:
        found = standard(path, user)
        changed = [
            Source(s.name, s.text.replace(name, f"other_{name}")) if s.name == used else s for s in found.sources
        ]
        return Found(found.name, tuple(changed))

    assert load_file(Source("f.tsched", USES)).errors == ()
    errors = load_file(Source("f.tsched", USES), resolve).errors
    assert errors and all(name in d.message for d in errors)
    assert {d.span.source.name for d in errors if d.span is not None} != {"f.tsched"}


def _text(name: str) -> str:
    return (stdlib_root() / name.removeprefix("std/")).read_text(encoding="utf-8")


def test_digests_are_written_of_files_without_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import docs.generate.library as generated

    assert sums() == SUMS.read_text(encoding="ascii")
    (tmp_path / "a.tsched").write_text("module a(l: Loop) {\n    nothing(l)\n}\n")
    monkeypatch.setattr(generated, "stdlib_root", lambda: tmp_path)
    with pytest.raises(TschedError, match="nothing"):
        sums()
