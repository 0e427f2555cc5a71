"""Places: the folders in which a `use` is looked up."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, cast

from tensorc_dsl.diagnostic import TschedError, problem
from tensorc_dsl.packages.files import SUFFIX, Files

VARIABLE = "TSCHED_PATH"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@problem(
    "E0232",
    "`{link}` is a link that leads out of {place}",
    help="copy what it leads to, or give the folder that is in with `-I`",
)
def LEADS_OUT(*, link: str, place: object) -> None: ...
@problem("E0909", "{file}: {message}", help="{repair}")
def SETTINGS(*, file: str, message: str, repair: str) -> None: ...


@dataclass(frozen=True, slots=True)
class SearchFolder:
    """A folder in which a `use` is looked up. `what` is the reason; `name` is the first part of its files' paths, or empty.

    `use vendor.kernels` means `kernels.tsched` in a place with the name `vendor`, and `vendor/kernels.tsched` in one
    without a name.
    """

    folder: Path
    what: str
    name: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{shown(self.folder)} ({self.what})"

    def find(self, path: tuple[str, ...], files: Files) -> Path | None:
        """The file or the folder for the path of a `use`. Nothing outside of the place is read.

        Raises TschedError (E0232) for a link that leads out of the place.
        """
        inside = path[len(self.name) :]
        if path[: len(self.name)] != self.name or not all(map(_IDENTIFIER.fullmatch, inside)):
            return None
        at = self.folder.joinpath(*inside)
        file = at.with_name(at.name + SUFFIX)
        if inside and files.has(file):
            self._require_inside(file)
            return file
        if os.path.isdir(at):
            self._require_inside(at)
        listed = files.listed(at)
        for found in listed:
            self._require_inside(found)
        return at if listed else None

    def _holds(self, path: Path) -> bool:
        # `Path.resolve` fails on cyclic links; `os.path.realpath` does not.
        return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self.folder))

    def _require_inside(self, path: Path) -> None:
        if not self._holds(path):
            raise TschedError(LEADS_OUT(None, link=shown(path), place=self))

    def names(self, path: tuple[str, ...], files: Files) -> list[str]:
        """The possible names in place of the last part of the path."""
        if path[: len(self.name)] != self.name:
            return list(self.name[:1]) if len(path) == 1 else []
        parent = self.folder.joinpath(*path[len(self.name) : -1])
        if len(path) <= len(self.name) or not self._holds(parent):
            return []
        inside = filter(self._holds, parent.glob("*") if os.path.isdir(parent) else ())
        folders = (p for p in inside if p.suffix != SUFFIX and files.listed(p))
        return [p.stem for p in (*filter(self._holds, files.listed(parent)), *folders)]


def shown(path: Path) -> str:
    """The path in messages: relative to the working folder if it is inside."""
    try:
        return str(Path(os.path.abspath(path)).relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def given(folders: Sequence[str | os.PathLike[str]]) -> Iterator[SearchFolder]:
    """The places of the option `-I`."""
    for folder in folders:
        yield SearchFolder(Path(folder), "-I")


def from_environment() -> Iterator[SearchFolder]:
    """The places of the variable TSCHED_PATH, separated like those of PATH."""
    for folder in os.environ.get(VARIABLE, "").split(os.pathsep):
        if folder:
            yield SearchFolder(Path(folder), VARIABLE)


def of_project(folder: Path) -> Iterator[SearchFolder]:
    """The module paths of the project that `folder` lies in.

    They are listed in the nearest `pyproject.toml` at or above the folder that has a table `[tool.tensorc-dsl]`, as
    `module-paths`, relative to that file. Raises TschedError (E0909) if they are not folders of the project.
    """
    here = Path(os.path.abspath(folder))
    for above in (here, *here.parents):
        file = above / "pyproject.toml"
        if not file.is_file():
            continue
        table = _table(file)
        if table is None:
            continue
        paths = table.get("module-paths", [])
        if unknown := sorted(set(table) - {"module-paths"}):
            raise _settings(file, f"there is no setting `{unknown[0]}`", 'there is only `module-paths = ["…"]`')
        if not isinstance(paths, list) or not all(isinstance(p, str) for p in cast(list[Any], paths)):
            raise _settings(file, "`module-paths` is not a list of strings", 'write `module-paths = ["modules"]`')
        for p in cast(list[str], paths):
            if PurePath(p).is_absolute() or not (above / p).resolve().is_relative_to(above.resolve()):
                raise _settings(
                    file, f"module path `{p}` leads out of the project", f"give folders outside with `-I` or {VARIABLE}"
                )
            yield SearchFolder(above / p, "module-paths of pyproject.toml")
        return


def _table(file: Path) -> dict[str, Any] | None:
    import tomllib  # only where there is a project

    try:
        text = file.read_text(encoding="utf-8")
        if "tensorc-dsl" not in text:
            return None
        return tomllib.loads(text).get("tool", {}).get("tensorc-dsl")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise _settings(file, str(e), "repair the file") from e


def _settings(file: Path, message: str, repair: str) -> TschedError:
    return TschedError(SETTINGS(None, file=shown(file), message=message, repair=repair))
