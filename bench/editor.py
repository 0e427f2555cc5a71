"""How fast the language server is on a file of 2,000 lines: `python -m bench.editor`.

It starts the server as an editor does, edits the file, and asks. Times are in milliseconds, from the last byte that is sent
to the answer; that of diagnostics includes the pause that the server waits for. Processor time is the mean of the server's
own: on a busy machine it is the steadier one. The first answers are not counted: they make what is kept of a file.

`--memory 10000` makes so many edits instead, and prints the memory of the server after each tenth of them.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

GROUP = """
/// Product {n}
compute product{n}(A: f32[M, K], B: f32[K, N]; scale: float = 1.0) -> C: f32[M, N] {{
    let T[i, j] = sum[k] A[i, k] * B[k, j]
    C[i, j] = max(T[i, j], 0.0) * scale
}}
module rows{n}(b: Block, width = 8) when b.is_injective {{
    let l = b.loops[0]
    let parts ~ sample_perfect_tile(l, parts=2, max_innermost=width)
    let [outer, inner] = split(l, parts)
    reorder(outer, inner)
    unroll(inner)
}}
space space{n} for llvm {{ rows{n}(width=2); default }}
schedule tiled{n} for product{n} {{
    let [i, j] = C.loops
    let rows ~ sample_perfect_tile(i, parts=2, max_innermost=8)
    let columns ~ sample_perfect_tile(j, parts=2) := [4, 16]
    let [i0, i1] = split(i, rows); let [j0, j1] = split(j, columns)
    reorder(i0, j0, i1, j1)
    parallel(i0)
    unroll(i1)
    vectorize(j1)
}}
task task{n} = product{n}(M=64, N=64, K=64) with tiled{n}
"""


def text_of(lines: int) -> str:
    """A file of at least that many lines, which uses the library."""
    text, n = "use std.cpu.{default}\n", 0
    while text.count("\n") < lines:
        text += GROUP.format(n=n)
        n += 1
    return text


class Server:
    """A server, and the messages to and from it."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", "from tensorc_dsl.faces.cli.main import main; main()", "lsp"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._number = 0

    def processor(self) -> float:
        """Seconds of processor time that the server has used."""
        used = psutil.Process(self.process.pid).cpu_times()
        return used.user + used.system

    def send(self, method: str, params: Any, number: int | None = None) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if number is not None:
            message["id"] = number
        data = json.dumps(message).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        out, length = self.process.stdout, 0
        assert out is not None
        while (line := out.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        return json.loads(out.read(length))

    def ask(self, method: str, params: Any) -> Any:
        self._number += 1
        self.send(method, params, self._number)
        while (found := self.receive()).get("id") != self._number or "method" in found:
            pass
        return found["result"]

    def told(self, version: int) -> Any:
        """The diagnostics of a version."""
        while True:
            found = self.receive()
            if found.get("method", "").endswith("publishDiagnostics") and found["params"]["version"] >= version:
                return found["params"]["diagnostics"]


def main() -> None:
    """Print the median and the slowest of each kind of answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--edits", type=int, default=40)
    parser.add_argument("--memory", type=int, metavar="EDITS")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "large.tsched"
        file.write_text(text := text_of(options.lines))
        server = Server()
        opened(server, file.as_uri(), text)
        if options.memory:
            memory(server, file.as_uri(), text, options.memory)
        else:
            measure(server, file.as_uri(), text, options.edits)
        server.ask("shutdown", None)
        server.send("exit", None)
        server.process.wait()


def opened(server: Server, uri: str, text: str) -> None:
    server.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
    server.send("initialized", {})
    begun = time.perf_counter()
    document = {"uri": uri, "languageId": "tsched", "version": 0, "text": text}
    server.send("textDocument/didOpen", {"textDocument": document})
    server.told(0)
    print(f"{text.count(chr(10))} lines\nopening the file: {1e3 * (time.perf_counter() - begun):.0f} ms")


def memory(server: Server, uri: str, text: str, edits: int) -> None:
    """Edit the file, ask something after each edit, and print the resident memory ten times."""
    rng = random.Random(0)
    places = [found.start() for found in re.finditer(re.escape("unroll(inner)"), text)]
    for n in range(1, edits + 1):
        place = rng.choice(places)
        new = rng.choice([f"unroll(inner) // {n}", f"unroll(inner)\n// {n}", "unroll(inner, ", f"let x{n} = {n}"])
        now = text[:place] + new + text[place + len("unroll(inner)") :]
        change = {"textDocument": {"uri": uri, "version": n}, "contentChanges": [{"text": now}]}
        server.send("textDocument/didChange", change)
        at = {"line": now[:place].count("\n"), "character": 8}
        method = rng.choice(
            ["hover", "completion", "documentSymbol", "semanticTokens/full", "foldingRange", "codeLens"]
        )
        server.ask(f"textDocument/{method}", {"textDocument": {"uri": uri}, "position": at})
        if n % max(1, edits // 10) == 0:
            print(f"{n:6} edits: {psutil.Process(server.process.pid).memory_info().rss / 2**20:.0f} MiB", flush=True)


def measure(server: Server, uri: str, text: str, edits: int) -> None:
    times: dict[str, list[float]] = {}
    spent: dict[str, float] = {}
    last = ""
    identifier = {"uri": uri}
    places = [found.start() for found in re.finditer(re.escape("unroll(inner)"), text)]
    for n in range(edits + 1):
        place = places[n % len(places)]
        line = text[:place].count("\n") + (n % 3)
        at = {"line": line, "character": 8}
        whole = {"start": {"line": 0, "character": 0}, "end": {"line": text.count("\n"), "character": 0}}
        # An edit inside of a line, an edit that moves all lines below, and one that leaves a line half typed.
        new = ["unroll(inner) ", "unroll(inner)\n", "unroll(inner, "][n % 3]
        now = text[:place] + new + text[place + len("unroll(inner)") :]
        change = {"textDocument": {"uri": uri, "version": n}, "contentChanges": [{"text": now}]}
        asked = {
            "hover": {"position": at},
            "completion": {"position": at},
            "definition": {"position": at},
            "references": {"position": at, "context": {"includeDeclaration": True}},
            "signatureHelp": {"position": at},
            "documentSymbol": {},
            "foldingRange": {},
            "semanticTokens/full/delta": {"previousResultId": last},
            "semanticTokens/full": {},
            "inlayHint": {"range": whole},
            "codeLens": {},
        }
        for k, (method, params) in enumerate(asked.items()):
            server.send("textDocument/didChange", {**change, "contentChanges": [{"text": now + " " * k}]})
            begun, used = time.perf_counter(), server.processor()
            found = server.ask(f"textDocument/{method}", {"textDocument": identifier, **params})
            if method.startswith("semanticTokens"):
                last = found["resultId"]
            if n:
                times.setdefault(method, []).append(time.perf_counter() - begun)
                spent[method] = spent.get(method, 0.0) + server.processor() - used
        begun = time.perf_counter()
        server.send("textDocument/didChange", {**change, "textDocument": {"uri": uri, "version": n + 10_000}})
        server.told(n + 10_000)
        if n:
            times.setdefault("diagnostics", []).append(time.perf_counter() - begun)
    for method, found in times.items():
        processor = f", processor {1e3 * spent[method] / len(found):4.0f} ms" if method in spent else ""
        print(
            f"{method:26} median {1e3 * statistics.median(found):5.0f} ms, slowest {1e3 * max(found):5.0f} ms{processor}"
        )


if __name__ == "__main__":
    main()
