"""Every request has an answer: with parameters that are wrong, missing, null and huge, and messages that are none."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types as lsp

from bench.editor import Server
from tests.lsp.test_names import FILE

INVALID_PARAMS, NO_METHOD, INVALID_REQUEST, NOT_JSON, NOT_STARTED, REFUSED = (
    -32602, -32601, -32600, -32700, -32002, lsp.LSPErrorCodes.RequestFailed.value,
)  # fmt: skip


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return (tmp_path_factory.mktemp("messages") / "open.tsched").as_uri()


@pytest.fixture(scope="module")
def server(uri: str) -> Iterator[Server]:
    server = Server()
    try:
        refused = answer(server, {"id": 1, "method": "textDocument/hover", "params": {}})
        assert refused["error"]["code"] == NOT_STARTED
        assert answer(server, {"id": 2, "method": "initialize", "params": 3})["error"]["code"] == INVALID_PARAMS
        server.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
        server.send("initialized", {})
        document = {"uri": uri, "languageId": "tsched", "version": 1, "text": FILE}
        server.send("textDocument/didOpen", {"textDocument": document})
        yield server
        lives(server, uri)
        server.ask("shutdown", None)
        late = answer(server, {"id": 3, "method": "textDocument/hover", "params": {}})
        assert late["error"]["code"] == INVALID_REQUEST
        server.send("exit", None)
        assert server.process.wait(60) == 0
    finally:
        server.process.kill()
        server.process.communicate()


def answer(server: Server, message: dict[str, Any]) -> dict[str, Any]:
    """The answer to a message, which is sent as it is."""
    return answered(server, json.dumps({"jsonrpc": "2.0", **message}).encode(), message.get("id"))


def answered(server: Server, data: bytes, number: object) -> dict[str, Any]:
    assert server.process.stdin is not None
    server.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
    server.process.stdin.flush()
    while "id" not in (found := server.receive()) or "method" in found:
        assert found.get("method") != "window/logMessage", found
    assert found["id"] == number
    return found


def lives(server: Server, uri: str) -> None:
    found = server.ask("textDocument/hover", requests(uri)["textDocument/hover"])
    assert "rows" in found["contents"]["value"]


WHOLE = ("documentSymbol", "foldingRange", "semanticTokens/full", "codeLens")


def requests(uri: str) -> dict[str, Any]:
    """Each request that the server answers, with right parameters."""
    at, document = {"line": FILE[: FILE.index("rows ~")].count("\n"), "character": 9}, {"uri": uri}
    whole = {"start": {"line": 0, "character": 0}, "end": {"line": 20, "character": 0}}
    place = {"textDocument": document, "position": at}
    item = {"name": "cut", "kind": 6, "uri": uri, "range": whole, "selectionRange": whole}
    lens = {"range": whole, "data": {"uri": uri, "task": "small"}}
    found = {
        **dict.fromkeys(("hover", "completion", "definition", "signatureHelp", "documentHighlight"), place),
        **dict.fromkeys(("prepareRename", "prepareCallHierarchy"), place),
        **{name: {"textDocument": document} for name in WHOLE},
        "references": {**place, "context": {"includeDeclaration": True}},
        "rename": {**place, "newName": "x"},
        "selectionRange": {"textDocument": document, "positions": [at]},
        "semanticTokens/full/delta": {"textDocument": document, "previousResultId": "1"},
        "semanticTokens/range": {"textDocument": document, "range": whole},
        "inlayHint": {"textDocument": document, "range": whole},
        "formatting": {"textDocument": document, "options": {"tabSize": 4, "insertSpaces": True}},
        "rangeFormatting": {"textDocument": document, "range": whole, "options": {"tabSize": 4, "insertSpaces": True}},
        "codeAction": {"textDocument": document, "range": whole, "context": {"diagnostics": []}},
    }  # fmt: skip
    return {
        **{f"textDocument/{name}": params for name, params in found.items()},
        "callHierarchy/incomingCalls": {"item": item},
        "callHierarchy/outgoingCalls": {"item": item},
        "codeLens/resolve": lens,
        "workspace/symbol": {"query": "ro"},
        "workspace/willRenameFiles": {"files": [{"oldUri": uri, "newUri": f"{uri}.new"}]},
        "workspace/executeCommand": {"command": "tensorc-dsl.programAfterStep", "arguments": [uri, at, None, None]},
    }


WRONG: tuple[Any, ...] = (
    None, -1, 2**31, 10**400, 1.5, True, "", "\0", "x" * 2_000, "file:///\0", "file://[", "file:///" + 300 * "n",
    [], {}, [[]], {"jsonrpc": "2.0"}, {"line": -1}, [None],
)  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each object or list with each of its keys."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def spoilt(params: Any, rng: random.Random) -> Any:
    """The parameters with one thing less, or wrong."""
    new = copy.deepcopy(params)
    holder, key = rng.choice(list(places([new])))
    if isinstance(holder, dict) and rng.random() < 0.2:
        del holder[key]
    elif holder[key] is new:
        return rng.choice(WRONG)
    else:
        holder[key] = rng.choice(WRONG)
    return new


@pytest.mark.corpus
@pytest.mark.parametrize("method", requests("file:///nowhere"))
def test_wrong_parameters_have_an_answer(server: Server, uri: str, method: str) -> None:
    right = requests(uri)[method]
    assert "error" not in answer(server, {"id": method, "method": method, "params": right})
    for n, params in enumerate((None, [], 3, "x", [right], {"params": right})):
        found = answer(server, {"id": n, "method": method, "params": params})
        assert found["error"]["code"] == INVALID_PARAMS and found["error"]["message"], (params, found)
    assert answer(server, {"id": 0, "method": method})["error"]["code"] == INVALID_PARAMS
    rng = random.Random(method)
    for n in range(16):
        params = spoilt(right, rng)
        found = answer(server, {"id": f"{n}", "method": method, "params": params})
        assert found.get("error", {}).get("code", REFUSED) in (INVALID_PARAMS, REFUSED), (params, found)


def test_every_other_method_has_an_answer(server: Server, uri: str) -> None:
    known = {*requests(uri), "initialize", "shutdown"}
    for n, method in enumerate([m for m in lsp.METHOD_TO_TYPES if m not in known] + ["", "$/none", "\0", "x" * 70_000]):
        code = answer(server, {"id": n, "method": method, "params": {"textDocument": {"uri": uri}}})["error"]["code"]
        assert code in (NO_METHOD, INVALID_PARAMS), method


@pytest.mark.parametrize("number", [1.5, True, [], {}, None], ids=repr)
def test_a_message_whose_number_is_none_is_refused(server: Server, number: object) -> None:
    data = json.dumps({"jsonrpc": "2.0", "id": number, "method": "textDocument/hover", "params": {}}).encode()
    assert answered(server, data, None)["error"]["code"] == INVALID_REQUEST


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"{", NOT_JSON),
        (b"\xff", NOT_JSON),
        (b"[" * 100_000, NOT_JSON),
        (b"[]", INVALID_REQUEST),
        (b"3", INVALID_REQUEST),
        (b"{}", INVALID_REQUEST),
        (b'{"jsonrpc": "1.0", "method": "exit"}', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "method": 3}', INVALID_REQUEST),
    ],
)
def test_what_is_no_message_is_refused(server: Server, data: bytes, code: int) -> None:
    assert answered(server, data, None)["error"]["code"] == code


def test_notifications_with_wrong_parameters_are_left_out(server: Server, uri: str) -> None:
    for method in (
        "textDocument/didOpen",
        "textDocument/didChange",
        "textDocument/didClose",
        "$/cancelRequest",
        "exits",
    ):
        for params in (None, 3, {}, {"textDocument": {"uri": 3}}, {"textDocument": {"uri": "file://["}}, {"id": []}):
            server.send(method, params)
    for name in ("file:///" + 300 * "n", "file:///%00", "untitled:1", "untitled:" + 300 * "n", ""):
        server.send(
            "textDocument/didOpen",
            {"textDocument": {"uri": name, "languageId": "tsched", "version": 1, "text": "use std.cpu\n"}},
        )
        server.send("textDocument/didClose", {"textDocument": {"uri": name}})
    lives(server, uri)


def test_folders_with_strange_names_are_none(server: Server, tmp_path: Path, uri: str) -> None:
    strange = [{"uri": u, "name": "x"} for u in ("file:///\0", "file://[", "file:///" + 300 * "n", "untitled:1")]
    for added, removed in ((strange, []), ([], strange)):
        server.send("workspace/didChangeWorkspaceFolders", {"event": {"added": added, "removed": removed}})
        assert server.ask("workspace/symbol", {"query": "rows"}) is not None
    lives(server, uri)
