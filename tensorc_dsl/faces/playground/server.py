"""The server: it hands out the page and answers its questions, on this machine only and to those who know the token.

The address of everything begins with the token. A browser that another site's page has ask here does not know it; names that
lead here by tricks of the name service, and other origins, are refused all the same. Processes that can be killed answer the
questions, so that no text can hang or end the server.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

import msgspec

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.playground.messages import DESK, Answer, Open, Question, Refused, Show, questions
from tensorc_dsl.faces.playground.page import FILES, page
from tensorc_dsl.faces.report.terminal import say, show_foreign
from tensorc_dsl.processes.machine import available
from tensorc_dsl.processes.protocol import Worker, WorkerBug, WorkerCrash, WorkerTimeout

CHECK_SECONDS, SHOW_SECONDS = 10.0, 30.0
"""How long an answer may take: a large file of the library takes a tenth of a second."""

BYTES = 3 << 30
"""The memory of a process; a tenth of it is usual."""

WAITING = 8
"""The most requests that wait for a process. A page sends one after another, so more come from many pages."""


class Busy(Exception):
    """Too many questions wait."""


class Desks:
    """Two processes, one for what a text says and one for what it becomes, so that a long answer of the second does
    not hold up the first. They start at once, and with the next question after one was killed."""

    def __init__(
        self,
        path: str,
        include: Sequence[str],
        records: str | None,
        check: float = CHECK_SECONDS,
        show: float = SHOW_SECONDS,
    ) -> None:
        opened = Open(path, tuple(include), records)
        self._check = _Desk(opened, check, "check")
        self._show = _Desk(opened, show, "show")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for desk in (self._check, self._show):
            desk.close()

    def ask(self, question: Question) -> Answer:
        """The answer; Refused if it takes too long. Raises Busy, and WorkerBug for a bug."""
        return (self._show if isinstance(question, Show) else self._check).ask(question)


class _Desk:
    """One process. The system kills it with the thread that started it, so one thread does, as long as the server runs."""

    def __init__(self, opened: Open, seconds: float, command: str) -> None:
        self._opened = opened
        self._seconds = seconds
        self._command = command
        self._worker = Worker(DESK, memory=min(BYTES, available()))
        self._thread = ThreadPoolExecutor(1, "playground")
        self._waiting = 0
        self._thread.submit(self._worker.start)

    def ask(self, question: Question) -> Answer:
        if self._waiting >= WAITING:
            raise Busy
        self._waiting += 1
        try:
            return self._thread.submit(self._answer, question).result()
        finally:
            self._waiting -= 1

    def _answer(self, question: Question) -> Answer:
        try:
            self._worker.ready()
            if not self._worker.prepared:
                self._worker.prepare(self._opened, self._seconds)
            return self._worker.ask(question, self._seconds)
        except WorkerTimeout:
            return self._refused(f"the answer takes longer than {self._seconds:g} s")
        except WorkerCrash as e:  # it may have taken too much memory, which the message says then
            return self._refused(f"the process that works on the answer has ended: {e}")

    def _refused(self, why: str) -> Refused:
        return Refused(f"{why}\nmake the task smaller, or ask `tensorc-dsl {self._command}`, which has no such limit")

    def close(self) -> None:
        """End the process, and the question that it works on."""
        self._worker.kill()
        self._thread.shutdown(wait=False, cancel_futures=True)


HOST = "127.0.0.1"

LARGEST = 8 << 20
"""Bytes of a question: a text of the largest size that is checked, with room for decisions."""

IDLE_SECONDS = 120.0
"""Seconds without data after which a connection is closed."""

_JSON = "application/json"


@problem(
    "E0931",
    "cannot listen on port {port} of this machine: {why}",
    help="name another port with `--port`, or none: then a free one is taken",
)
def NO_PORT(*, port: int, why: str) -> None: ...


class Playground(ThreadingHTTPServer):
    """Serves the page for a text; `address` is where. Its processes end with it."""

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        source: Source,
        *,
        port: int = 0,
        include: Sequence[str] = (),
        records: str | None = None,
        check: float = CHECK_SECONDS,
        show: float = SHOW_SECONDS,
    ) -> None:
        """A server that listens on that port, or on a free one. Raises TschedError (E0931)."""
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as e:
            raise TschedError(NO_PORT(None, port=port, why=(e.strerror or str(e)).lower())) from e
        self.source = source
        self.token = secrets.token_urlsafe(24)
        self.desks = Desks(source.name, include, records, check, show)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names by which a browser may ask for it."""
        return (f"{HOST}:{self.server_port}", f"localhost:{self.server_port}")

    @property
    def address(self) -> str:
        return f"http://{self.hosts[0]}/{self.token}/"

    def __enter__(self) -> Self:
        self.desks.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.server_close()
        self.desks.__exit__()

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that goes away in the middle of an answer is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "tensorc-dsl", ""
    timeout = IDLE_SECONDS

    @property
    def playground(self) -> Playground:
        assert isinstance(self.server, Playground)
        return self.server

    def do_GET(self) -> None:
        name = self._asked()
        if name is None:
            return
        if name == "":
            nonce = secrets.token_urlsafe(16)
            self._answer(page(self.playground.source, nonce), "text/html; charset=utf-8", nonce)
        elif name in FILES:
            kind, data = FILES[name]()
            self._answer(data, kind)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing of that name")

    def do_POST(self) -> None:
        name = self._asked()
        if name is None:
            return
        length = self.headers.get("Content-Length", "")
        if name != "ask":
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing of that name")
        elif self.headers.get_content_type() != _JSON:
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a question is {_JSON}")
        elif not re.fullmatch("[0-9]{1,18}", length):
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "a question says how long it is")
        elif int(length) > LARGEST:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a question has at most {LARGEST:,} bytes")
        else:
            self._reply(self.rfile.read(int(length)))

    def _reply(self, asked: bytes) -> None:
        """Answer a question."""
        try:
            answer = self.playground.desks.ask(questions.decode(asked))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
            return self._refuse(HTTPStatus.BAD_REQUEST, f"this is no question: {e}")
        except Busy:
            return self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many questions wait")
        except WorkerBug as e:
            show_foreign(f"internal error: {e}")
            say("this is a bug in tensorc-dsl; the playground goes on", err=True)
            answer = Refused("this is a bug in tensorc-dsl; the terminal of `tensorc-dsl serve` says more")
        return self._answer(msgspec.json.encode(answer), _JSON)

    def _asked(self) -> str | None:
        """The name behind the token; None if the request was refused."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if host not in self.playground.hosts:
            why = "this is not the name of the playground"
        elif origin is not None and origin != f"http://{host}":
            why = "pages of other sites ask nothing here"
        else:
            token, slash, name = self.path.removeprefix("/").partition("/")
            if slash and hmac.compare_digest(token.encode(errors="replace"), self.playground.token.encode()):
                return name
            why = "this is not the address that `tensorc-dsl serve` printed"
        self._refuse(HTTPStatus.FORBIDDEN, why)
        return None

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        """What the request still sends is not read, so the connection ends."""
        self.close_connection = True
        self._answer(f"{why}\n".encode(), "text/plain; charset=utf-8", status=status)

    def _answer(self, data: bytes, kind: str, nonce: str = "", status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        styles = f"'self' 'nonce-{nonce}'" if nonce else "'self'"
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(data)),
            "Cache-Control": "no-store",
            "Content-Security-Policy": (
                f"default-src 'none'; script-src 'self'; style-src {styles}; connect-src 'self'; img-src data:; "
                "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
            ),
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            **({"Connection": "close"} if self.close_connection else {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged: addresses have the token in them."""
