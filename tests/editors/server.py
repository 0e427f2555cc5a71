"""A language server that writes down what it is told: `server.py FILE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    out = Path(sys.argv[1])
    said: list[object] = []
    while line := sys.stdin.buffer.readline():
        size = int(line.partition(b":")[2])
        while sys.stdin.buffer.readline().strip():
            pass
        message = json.loads(sys.stdin.buffer.read(size))
        method = message.get("method")
        params = message.get("params") or {}
        document = params.get("textDocument", {})
        said.append([method, params.get("rootUri"), document.get("languageId"), document.get("uri")])
        out.write_text(json.dumps(said), encoding="utf-8")
        if method == "exit":
            return
        if "id" in message:
            result = {"capabilities": {"textDocumentSync": 1}} if method == "initialize" else None
            data = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
            sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
