"""Files and their tasks by name, for one machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path

from tensorc_dsl.backend.find import require_backend
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import CheckedFile, load_source
from tensorc_dsl.faces.api.tasks import StrPath, Task
from tensorc_dsl.faces.packages.files import Disk, Files
from tensorc_dsl.faces.packages.resolve import Resolver
from tensorc_dsl.faces.report.files import no_such_task
from tensorc_dsl.interp.space import NATIVE, task_space
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.machine.host import host_target, machine_target

OF_KIND = f"{NATIVE}-"
"""What the name of a kind comes after in the name of the machine's own target of that kind, `native-cuda`."""


class UnknownTask(TschedError, KeyError):
    """A file has no task of that name (E0905). It is bad input, and the KeyError of a mapping."""

    __str__ = TschedError.__str__


def load(
    path: StrPath,
    *,
    threads: int | None = None,
    include: Sequence[StrPath] = (),
    target: str | None = None,
    mcpu: str | None = None,
    files: Files | None = None,
) -> TaskFile:
    """The tasks of a `.tsched` file, for this machine; kernels use `threads` threads, by default one per processor.

    Files that it uses are looked for in the folders `include` too. `target` replaces the targets of its spaces: by one of
    the file, by its name, by this machine, "native", or by its GPU, "native-cuda". `mcpu` is a CPU, by LLVM's name, that
    replaces the target's CPU.
    Files are read through `files`, by default from the disk. Raises TschedError with all errors in the file.
    """
    _require_folders(include)
    files = files or Disk()
    checked = load_source(files.read(path), Resolver(path, include, files))
    return TaskFile(checked, host_target(threads), target, mcpu, _words(threads, include, target, mcpu))


def loads(
    text: str,
    *,
    name: str = "<text>",
    threads: int | None = None,
    include: Sequence[StrPath] = (),
    target: str | None = None,
    mcpu: str | None = None,
) -> TaskFile:
    """As `load`, for a text. Its name in messages is `name`; files that it uses are looked for as for a file of that name."""
    _require_folders(include)
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the text of a file is a str, not {type(text).__name__}")
    source = Source.of(text.encode(), name)
    checked = load_source(source, Resolver(name, include))
    return TaskFile(checked, host_target(threads), target, mcpu, _words(threads, include, target, mcpu))


def _words(threads: int | None, include: Sequence[StrPath], target: str | None, mcpu: str | None) -> tuple[str, ...]:
    """The options of a command that loads a file in the same way."""
    named = (("--target", target), ("--mcpu", mcpu), ("--threads", threads), *(("-I", fspath(i)) for i in include))
    return tuple(str(word) for option, value in named if value is not None for word in (option, value))


def _require_folders(include: Sequence[StrPath]) -> None:
    """Raises TypeError for one folder in place of several: of a text, each letter would be one."""
    if isinstance(include, str | bytes | PathLike):
        raise TypeError(f"include is a list of folders: include=[{include!r}]")


class TaskFile(Mapping[str, "Task"]):
    """The tasks of one file by name, in the order of the file."""

    def __init__(
        self,
        checked: CheckedFile,
        native: Target,
        target: str | None = None,
        mcpu: str | None = None,
        words: tuple[str, ...] = (),
    ) -> None:
        self.checked = checked
        self.native = native
        self._target = target
        self._mcpu = mcpu
        self._words = words

    def __getitem__(self, name: str) -> Task:
        """The task of that name. Raises UnknownTask with the nearest name if there is none, TschedError (E0910, E0915) for
        a CPU that its target cannot have, and E0918 if it is to be the GPU of this machine, which cannot be used."""
        if name not in self.checked.tasks:
            known = list(self.checked.tasks)
            raise UnknownTask(no_such_task(name, known, self.checked.source.name))
        native, chosen = self.native, self._target
        if (
            chosen is not None
            and chosen.startswith(OF_KIND)
            and (found := machine_target(chosen.removeprefix(OF_KIND)))
        ):
            native, chosen = found, NATIVE
        space = task_space(self.checked, name, native, chosen)
        if self._mcpu is not None:
            backend = require_backend(space.target.kind, name)
            space = replace(space, target=backend.with_cpu(space.target, self._mcpu))
        return Task(name, space, self.checked, words=self._words)

    def __iter__(self) -> Iterator[str]:
        return map(str, self.checked.tasks)

    def __len__(self) -> int:
        return len(self.checked.tasks)

    def __repr__(self) -> str:
        return f"TaskFile({Path(self.checked.source.name).name}: {', '.join(self) or 'no tasks'})"
