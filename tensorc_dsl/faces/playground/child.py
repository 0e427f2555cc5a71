"""A process that works for the page: it keeps the text as an editor's server does, and its last expansion."""

from __future__ import annotations

import gc
from pathlib import Path

from tensorc_dsl.base.diagnostic import TschedError, render
from tensorc_dsl.faces.lsp.analysis import Analysis
from tensorc_dsl.faces.lsp.documents import Document, Documents, uri_of
from tensorc_dsl.faces.lsp.records import Records
from tensorc_dsl.faces.playground.answers import Expanded, checked, completed, described, expanded, told
from tensorc_dsl.faces.playground.messages import (
    Answer,
    Check,
    Complete,
    Describe,
    Errand,
    Open,
    Opened,
    Refused,
    Show,
    errands,
)
from tensorc_dsl.processes.child import serve

_Key = tuple[str, dict[str, str], int]
"""What an expansion of a text depends on: the task, the decisions and the seed."""


class Desk:
    """Answers the page's questions, about one text after another."""

    def __init__(self, opened: Open) -> None:
        self._documents = Documents(opened.include)
        self._records = Records(None if opened.records is None else Path(opened.records))
        path = Path(opened.path)
        self._uri = uri_of(path)
        # In messages, the text has the name by which its writer knows it.
        self._documents.open[self._uri] = Document(self._uri, path, "")
        self._version = 0
        self._last: tuple[Analysis, _Key, Expanded] | None = None

    def check(self, asked: Check) -> Answer:
        document = self._document(asked.text)
        return checked(self._documents.analysis(document), document)

    def complete(self, asked: Complete) -> Answer:
        return completed(self._documents.analysis(self._document(asked.text)), asked.at, self._records)

    def describe(self, asked: Describe) -> Answer:
        return described(self._documents.analysis(self._document(asked.text)), asked.at, self._records)

    def show(self, asked: Show) -> Answer:
        analysis = self._documents.analysis(self._document(asked.text))
        if asked.task not in analysis.checked.elaborated:
            return Refused(f"there is no task `{asked.task}` whose program can be made")
        key = (asked.task, asked.decisions, asked.seed)
        try:
            if self._last is None or self._last[0] is not analysis or self._last[1] != key:
                self._last = (analysis, key, expanded(analysis, asked))
        except TschedError as e:
            return Refused("\n".join(map(render, e.diagnostics)))
        return told(analysis, asked, self._last[2], self._records)

    def _document(self, text: str) -> Document:
        """The document with that text."""
        document = self._documents.open[self._uri]
        if document.text != text:
            self._version += 1
            document = self._documents.put(self._uri, text, self._version)
        return document


def main() -> None:
    """Answer until the server is gone."""
    desks: list[Desk] = []

    def answer(errand: Errand) -> Answer:
        match errand:
            case Open():
                desks[:] = [Desk(errand)]
                return Opened()
            case Check():
                return desks[0].check(errand)
            case Complete():
                return desks[0].complete(errand)
            case Describe():
                return desks[0].describe(errand)
            case Show():
                return desks[0].show(errand)

    gc.set_threshold(100_000, 20, 20)  # trees are many objects and few cycles
    serve(errands, answer)


if __name__ == "__main__":
    main()
