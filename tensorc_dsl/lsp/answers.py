"""Answers about whole documents: they have thousands of places, and are kept in the form in which they are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp
from pygls.protocol import default_converter

if TYPE_CHECKING:
    from cattrs import Converter

Json = dict[str, Any]
"""An object of the protocol, with the protocol's own names."""


class Ready(list[Json]):
    """A list of objects that is sent as it is: turning typed ones into these takes longer than finding them."""


def converter() -> Converter:
    """The library's, which leaves what is ready alone."""
    found = default_converter()
    found.register_unstructure_hook(Ready, lambda answer: answer)
    found.register_unstructure_hook(lsp.SemanticTokens, _tokens)
    found.register_unstructure_hook(lsp.SemanticTokensEdit, _edit)
    return found


def _tokens(answer: lsp.SemanticTokens) -> Json:
    named = {} if answer.result_id is None else {"resultId": answer.result_id}
    return {**named, "data": answer.data}


def _edit(answer: lsp.SemanticTokensEdit) -> Json:
    return {"start": answer.start, "deleteCount": answer.delete_count, "data": answer.data}
