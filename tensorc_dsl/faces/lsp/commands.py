"""The commands that an editor runs, and what the best record of a task says: a search and a run of a task as the command
line does them, views of programs after a step, and code lenses, inlay hints and pins of recorded decisions.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from lsprotocol import types as lsp

from tensorc_dsl.base import units
from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.faces.lsp.analysis import Analysis, normal
from tensorc_dsl.faces.lsp.documents import Document, path_of
from tensorc_dsl.faces.lsp.records import Decided, Records, space_of
from tensorc_dsl.interp.expand import Late, Stand, Watched
from tensorc_dsl.interp.space import read_decision
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import preferring, prior, shown
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.tuning.machine.roof import GLANCE, Roof, roof_of

if TYPE_CHECKING:
    from tensorc_dsl.faces.lsp.server import Server

COMMAND = "tensorc-dsl.programAfterStep"

MOST_TASKS = 16
"""The number of tasks of a file that are expanded to find one that takes the step."""


SECONDS = 0.05
"""An expansion that is made to complete a word takes no longer."""


@frozen
class After:
    """`program` is the text of the program; `step` the range of the statement, None before the first one.

    `times` says how often the task takes the step: the program is that after the last time. `draws` are the decisions up to
    the end, with what else each can be; `problem` is why the expansion ended early, if it did.
    """

    task: str
    program: str
    step: lsp.Range | None
    times: int
    draws: list[dict[str, str]]
    problem: str

    def data(self) -> dict[str, object]:
        """As JSON, in the names of the protocol."""
        at = self.step
        where = at and {
            "start": {"line": at.start.line, "character": at.start.character},
            "end": {"line": at.end.line, "character": at.end.character},
        }
        return {
            "task": self.task, "program": self.program, "step": where, "times": self.times, "draws": self.draws,
            "problem": self.problem,
        }  # fmt: skip


def program_after(
    analysis: Analysis,
    position: lsp.Position,
    records: Records,
    task: str | None = None,
    decisions: Mapping[str, Decision] | None = None,
) -> After | None:
    """The program after the step at a position, for the task of that name, or the first one that takes the step; None if no
    task does. `decisions` replace those of the best record; draws that neither decides are drawn with seed 0.
    """
    offset = analysis.text.offset(position)
    item = analysis.item_at(offset)
    for name in _tasks(analysis, item, task):
        watched = _watched(analysis, name, records, decisions or {})
        if watched is None:
            continue
        own = [s for s in watched.stands if item is not None and _inside(s, item)]
        before = [s for s in own if analysis.start(s.span) <= offset]
        if isinstance(item, t.TaskDef):
            return _after(analysis, str(name.name), watched, watched.stands[-1:])
        if not own and not (isinstance(item, t.ScheduleDef) and watched.failure):
            continue
        # The innermost statement around the cursor; else the last one above.
        around = [s for s in before if offset <= analysis.end(s.span)]
        best = max(around or before, key=lambda s: (analysis.start(s.span), -analysis.end(s.span)), default=None)
        return _after(analysis, str(name.name), watched, [s for s in own if best and s.span == best.span])
    return None


def program_before(analysis: Analysis, offset: int, records: Records) -> Program | None:
    """The program before the step of a schedule or of a module that is written at an offset.

    None without a task that takes the steps around it, and if its expansion takes long. Where a module is applied to several
    blocks, the program is that of the last one to which the steps above are applied.
    """
    item = analysis.item_at(offset)
    until = time.monotonic() + SECONDS
    if not isinstance(item, t.ScheduleDef | t.ModuleDef):
        return None
    for name in _tasks(analysis, item, None):
        try:
            watched = _watched(analysis, name, records, {}, lambda: time.monotonic() > until)
        except Late:
            return None
        if watched is None:
            continue
        programs = [watched.start, *(s.program for s in watched.stands)]
        own = [n for n, s in enumerate(watched.stands) if _inside(s, item)]
        above = [n for n in own if analysis.end(watched.stands[n].span) < offset]
        if above:
            return programs[above[-1] + 1]
        if own or isinstance(item, t.ScheduleDef):
            return programs[own[0]] if own else watched.start
    return None


def _tasks(analysis: Analysis, item: t.Item | None, wanted: str | None) -> Iterator[t.TaskDef]:
    """The tasks that may take a step of the item, the likeliest first."""
    tasks = [x for x in analysis.checked.tasks.values() if analysis.is_own(x.span) and wanted in (None, str(x.name))]
    if isinstance(item, t.TaskDef):
        tasks = [x for x in tasks if x.name == item.name]
    if isinstance(item, t.ScheduleDef):
        tasks = [x for x in tasks if x.compute == item.compute and x.with_ in (None, item.name)]
    yield from tasks[:MOST_TASKS]


def _watched(
    analysis: Analysis,
    task: t.TaskDef,
    records: Records,
    decisions: Mapping[str, Decision],
    is_late: Callable[[], bool] = lambda: False,
) -> Watched | None:
    tuned = records.tuned(analysis, task)
    space = space_of(analysis, task, None if tuned is None else tuned.threads)
    if space is None:
        return None
    known = {**({} if tuned is None else tuned.best.decisions), **decisions}
    return space.watch(preferring(known, prior(np.random.default_rng(0))), is_late)


def _inside(s: Stand, item: t.Item) -> bool:
    return s.span.source is item.span.source and item.span.start <= s.span.start < item.span.end


def _after(analysis: Analysis, task: str, watched: Watched, stands: list[Stand]) -> After:
    program = stands[-1].program if stands else watched.start
    at = stands[-1].span if stands else None
    draws = [
        {"name": d.name, "value": shown(d.decision), "legal": d.distribution.describe()} for _, d in watched.places
    ]
    step = None if at is None or not analysis.is_own(at) else analysis.text.range(analysis.start(at), analysis.end(at))
    return After(task, format_program(program), step, len(stands), draws, watched.problem)


# Code lenses above each task: tune it, run it, show its program; and what its best record says.


TUNE, RUN, SHOW = "tensorc-dsl.tune", "tensorc-dsl.run", "tensorc-dsl.show"


def code_lenses(analysis: Analysis) -> list[lsp.CodeLens]:
    """The lenses of all tasks; `resolve` fills in what the records say."""
    found: list[lsp.CodeLens] = []
    for task in analysis.items:
        if not isinstance(task, t.TaskDef):
            continue
        at = analysis.text.range(analysis.start(task.name.span), analysis.end(task.name.span))
        name = str(task.name)
        for title, command in (("tune", TUNE), ("run", RUN), ("show program", SHOW)):
            found.append(lsp.CodeLens(at, lsp.Command(title, command, arguments=[analysis.uri, name])))
        found.append(lsp.CodeLens(at, data={"uri": analysis.uri, "task": name}))
    return found


def best_of(analysis: Analysis, name: str, records: Records, roofs: dict[str, Roof | None]) -> str:
    """The title of the last lens of a task: its best time, and the share of what this machine can do, or that there is none.

    The roof of a task is measured once; `roofs` has those that are known.
    """
    task = analysis.checked.tasks.get(name)
    tuned = None if task is None else records.tuned(analysis, task)
    if task is None or tuned is None or tuned.best.seconds is None:
        return "not tuned on this machine"
    seconds = tuned.best.seconds
    if tuned.key not in roofs:
        roofs[tuned.key] = _roof(analysis, task, tuned.threads)
    roof = roofs[tuned.key]
    share = None if roof is None else roof.share(seconds)
    of = "" if share is None or roof is None else f", {units.share(share)} of {roof.name}"
    return f"best {units.seconds(seconds)}{of}, {units.counted(tuned.threads, 'thread')}"


def _roof(analysis: Analysis, task: t.TaskDef, threads: int) -> Roof | None:
    space = space_of(analysis, task, threads)
    if space is None:
        return None
    try:
        return roof_of(space.program, space.target, threads, GLANCE)
    except TschedError:
        return None  # no code can be made for the target


# Inlay hints: beside each draw, what the best record of a task decided: `⟵ [8, 4, 2, 16]`.


MOST = 3
"""The number of different values that stand beside one draw."""


def inlay_hints(
    analysis: Analysis, within: lsp.Range, records: Records, users: Iterable[Analysis]
) -> list[lsp.InlayHint]:
    """A hint for each draw of the range that a record decides, as the text stands. Values of several tasks, or of several
    blocks of one, are joined by `|`; a single one is pinned when the hint is taken into the text."""
    low, high = analysis.text.offsets(within)
    values: dict[int, list[Decided]] = {}
    for found in records.draws(analysis, users):
        end = found.end
        if found.text.startswith(("maybe", "either")):
            # The name of the draw stands in front of its body.
            end = found.start + len(found.text.partition("{")[0].rstrip())
        if low <= found.start <= high and not found.draw.pinned:
            values.setdefault(end, []).append(found)
    return [_hint(analysis, end, found) for end, found in sorted(values.items())]


def _hint(analysis: Analysis, end: int, found: list[Decided]) -> lsp.InlayHint:
    different = list(dict.fromkeys(shown(f.draw.decision) for f in found))
    label = " | ".join(different[:MOST]) + (" | …" if len(different) > MOST else "")
    lines = dict.fromkeys(
        f"- **{shown(f.draw.decision)}** in the best record of `{f.replayed.task.name}` "
        f"({units.seconds(f.replayed.tuned.best.seconds or 0.0)})"
        for f in found
    )
    tooltip = lsp.MarkupContent(lsp.MarkupKind.Markdown, "\n".join(lines))
    at, pin = analysis.text.position(end), found[0].pin
    edits = [lsp.TextEdit(lsp.Range(at, at), pin)] if pin and len(different) == 1 else None
    return lsp.InlayHint(at, f"⟵ {label}", text_edits=edits, tooltip=tooltip, padding_left=True)


# Pins: a draw gets the value that the best record of a task decided.


KIND = lsp.CodeActionKind.RefactorRewrite


def pins(analysis: Analysis, within: lsp.Range, records: Records, users: Iterable[Analysis]) -> list[lsp.CodeAction]:
    """An action for each value that the draws of a range have in best records."""
    low, high = analysis.text.offsets(within)
    actions: dict[tuple[int, str], lsp.CodeAction] = {}
    for found in records.draws(analysis, users):
        if not found.pin or found.end < low or found.start > high:
            continue
        at = analysis.text.position(found.end)
        edit = lsp.WorkspaceEdit(changes={analysis.uri: [lsp.TextEdit(lsp.Range(at, at), found.pin)]})
        value, task = shown(found.draw.decision), found.replayed.task.name
        title = f"Pin `{found.draw.name}` to {value}, as in the best record of `{task}`"
        actions.setdefault((found.end, found.pin), lsp.CodeAction(title, KIND, edit=edit))
    return list(actions.values())


# Nothing in the folder of the document is imported.
_PROGRAM = (sys.executable, "-P", "-c", "from tensorc_dsl.faces.cli.main import main; main()")

LAST_LINES = 12
"""Lines of a command's output that are shown at its end."""


def add_commands(server: Server) -> None:
    """Have the server run the commands."""

    @server.command(COMMAND)
    def on_program_after(
        uri: str, position: lsp.Position, task: str | None = None, decisions: dict[str, str] | None = None
    ) -> dict[str, Any] | None:
        known = server.analysis(uri)
        if known is None:
            return None
        try:
            values = {name: read_decision(value) for name, value in (decisions or {}).items()}
        except TschedError as e:
            return {"problem": e.diagnostics[0].message}
        found = program_after(known, position, server.records, task, values)
        return None if found is None else found.data()

    @server.command(SHOW)
    def on_show(uri: str, task: str) -> dict[str, Any] | None:
        known = server.analysis(uri)
        named = [i for i in known.items if isinstance(i, t.TaskDef) and i.name == task] if known is not None else []
        if known is None or not named:
            return None
        at = known.text.position(known.start(named[0].name.span))
        found = program_after(known, at, server.records, task)
        return None if found is None else found.data()

    @server.command(TUNE)
    async def on_tune(uri: str, task: str) -> str:
        return await _run(server, "tune", uri, task)

    @server.command(RUN)
    async def on_run(uri: str, task: str) -> str:
        return await _run(server, "run", uri, task)


async def _run(server: Server, command: str, uri: str, task: str) -> str:
    """The end of the output of a command for a task of the saved file; the editor shows it, too."""
    path = path_of(uri)
    document = server.documents.open.get(uri)
    if not path.is_file():
        return _say(server, f"save the file first: `{command}` reads it", lsp.MessageType.Warning)
    if document is not None and not is_saved(document, path):
        _say(server, f"`{command}` reads the file as it was saved last", lsp.MessageType.Warning)
    records = () if server.records.path is None else ("--records", str(server.records.path.absolute()))
    process = await asyncio.create_subprocess_exec(
        *_PROGRAM,
        command,
        str(path.absolute()),
        task,
        *records,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=path.absolute().parent,
        env={**os.environ, "NO_COLOR": "1"},
    )
    try:
        out, _ = await process.communicate()
    except asyncio.CancelledError:
        # The editor has cancelled the request: a search keeps what it has found.
        process.terminate()
        await process.wait()
        raise
    said = "\n".join(out.decode(errors="replace").splitlines()[-LAST_LINES:])
    _say(server, said, lsp.MessageType.Info if process.returncode == 0 else lsp.MessageType.Error)
    refresh(server)
    return said


def is_saved(document: Document, path: Path) -> bool:
    """Whether the file has the text of the document; editors keep a mark of the byte order at its start to themselves."""
    saved = normal(path.read_bytes().decode(errors="replace").removeprefix("\ufeff"))
    return document.text in (saved, f" {saved}")


def refresh(server: Server) -> None:
    """Have the editor ask again what records say."""
    workspace = server.client_capabilities.workspace
    if workspace is not None and workspace.inlay_hint is not None and workspace.inlay_hint.refresh_support:
        server.workspace_inlay_hint_refresh(None)
    if workspace is not None and workspace.code_lens is not None and workspace.code_lens.refresh_support:
        server.workspace_code_lens_refresh(None)


def _say(server: Server, text: str, kind: lsp.MessageType) -> str:
    server.window_show_message(lsp.ShowMessageParams(kind, text))
    return text
