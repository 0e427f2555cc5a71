"""Requests and replies of the page: JSON between the page and the server, MessagePack between the server and its processes.

Positions are lines and UTF-16 units in them, from 0, as editors count.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from tensorc_dsl.processes.protocol import Purpose

PROGRAM, LOOPS = "program", "loops"


Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""A whole number as the protocol of editors has it."""


class Position(msgspec.Struct, frozen=True):
    line: Count
    character: Count


class Range(msgspec.Struct, frozen=True):
    start: Position
    end: Position


class Edit(msgspec.Struct, frozen=True):
    """The text in a range becomes `text`."""

    at: Range
    text: str


class Fix(msgspec.Struct, frozen=True):
    title: str
    edits: tuple[Edit, ...]


class Finding(msgspec.Struct, frozen=True):
    """`message` has the notes behind it, each on a line of its own. `grade` is `error`, `warning` or `info`."""

    at: Range
    grade: str
    code: str
    message: str
    fixes: tuple[Fix, ...]


class Step(msgspec.Struct, frozen=True):
    """A statement that changed the program. `at` is its place in the page's text; None for one of another file, which `place`
    names."""

    text: str
    at: Range | None
    place: str


class Choice(msgspec.Struct, frozen=True):
    """A draw: its `value`, and in order those that it can have, as far as they are listed; `legal` says it in words.

    A `pinned` one is decided by the text; `at` is its place in the page's text, None for one of another file. `whole` if
    `values` are all of them. `best` is its value in the best record, empty if there is none."""

    name: str
    value: str
    values: tuple[str, ...]
    legal: str
    pinned: bool
    at: Range | None
    whole: bool
    best: str


class Recorded(msgspec.Struct, frozen=True):
    """The best record of a task on this machine: its description, and the values of its draws."""

    said: str
    decisions: dict[str, str]


class Offer(msgspec.Struct, frozen=True):
    """A text that can stand at a place. `kind` is a word of the protocol of editors; `about` is HTML. Those of a lower
    `order` come first, and the others by the alphabet."""

    text: str
    kind: str
    detail: str
    about: str
    order: int


class Check(msgspec.Struct, tag=True, frozen=True, forbid_unknown_fields=True):
    """From the page: what is wrong in the text?"""

    text: str


class Show(msgspec.Struct, tag=True, frozen=True, forbid_unknown_fields=True):
    """From the page: what does a task become? `decisions` are values of draws by name; other draws are drawn with `seed`.

    `stage` is PROGRAM, for the program after so many steps (all of them, if `step` is None), LOOPS, or one of the target's
    backend, for what the last program becomes.
    """

    text: str
    task: str
    decisions: dict[str, str]
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    stage: str
    step: Count | None = None


class Complete(msgspec.Struct, tag=True, frozen=True, forbid_unknown_fields=True):
    """From the page: what can stand there?"""

    text: str
    at: Position


class Describe(msgspec.Struct, tag=True, frozen=True, forbid_unknown_fields=True):
    """From the page: what is that?"""

    text: str
    at: Position


Question = Check | Complete | Describe | Show


class Open(msgspec.Struct, tag=True, frozen=True):
    """To a process that has just been started: the name of the text, the folders in which to look for what it uses, and the
    database of searches, the user's without one."""

    path: str
    include: tuple[str, ...]
    records: str | None


class Opened(msgspec.Struct, tag=True, frozen=True):
    """From a process: it is ready for questions."""


class Checked(msgspec.Struct, tag=True, frozen=True):
    """The findings about the text, and its tasks that have a program. What their first schedules are refused is found, too,
    but nothing is `wrong` with the text then: the page shows the program up to there."""

    findings: tuple[Finding, ...]
    tasks: tuple[str, ...]
    wrong: bool


class Shown(msgspec.Struct, tag=True, frozen=True):
    """`text` is what was asked for, after so many of the `steps`; `changed` are the lines in it, from 0, that the last step
    made. `problem` says why the schedule ended early, if `early`, or why there is no text; `at` is the place of the step that
    was refused. `redrawn` says which draws could not keep the values that were wanted, and which rules were refused and left
    out. `stages` are those that there are, with a description of each. `record` is None without records."""

    steps: tuple[Step, ...]
    step: int
    changed: tuple[int, ...]
    draws: tuple[Choice, ...]
    stages: tuple[tuple[str, str], ...]
    text: str
    problem: str
    early: bool
    at: Range | None
    redrawn: tuple[str, ...]
    record: Recorded | None


class Completed(msgspec.Struct, tag=True, frozen=True):
    offers: tuple[Offer, ...]


class Described(msgspec.Struct, tag=True, frozen=True):
    """`about` is HTML; empty, without a place, where there is nothing to be said."""

    about: str
    at: Range | None


class Refused(msgspec.Struct, tag=True, frozen=True):
    """No answer: `message` is a finding as the command line prints it."""

    message: str


Answer = Opened | Checked | Completed | Described | Shown | Refused

questions = msgspec.json.Decoder(Question)

DESK: Purpose[Open | Question, Answer] = Purpose("tensorc_dsl.faces.playground.answers:desk", Open | Question, Answer)
