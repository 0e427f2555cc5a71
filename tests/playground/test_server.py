"""Who is answered, and who is refused; how the server begins and ends."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.faces.playground.page import FILES, first, page
from tensorc_dsl.faces.playground.server import LARGEST, Playground

JSON = {"Content-Type": "application/json"}
QUESTION = b'{"type": "Check", "text": ""}'


def ask(
    playground: Playground, path: str | None = None, body: bytes | None = None, **headers: str
) -> tuple[int, str, http.client.HTTPMessage]:
    """The status, the text and the headers of an answer; of a path without its token, if it begins with a slash."""
    connection = http.client.HTTPConnection("127.0.0.1", playground.server_port, timeout=60)
    where = path if path is not None and path.startswith("/") else f"/{playground.token}/{path or ''}"
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET" if body is None else "POST", where, body, names)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, answer.headers


def test_the_page_and_its_files_are_there(playground: Playground) -> None:
    status, text, headers = ask(playground)
    assert status == 200 and headers.get_content_type() == "text/html"
    nonce = re.search(r"'nonce-([\w-]+)'", headers["Content-Security-Policy"])
    assert nonce is not None and f'"nonce":"{nonce[1]}"' in text and nonce[1] not in ask(playground)[1]
    named = {*re.findall(r'(?:src|href)="([^"#:]+)"', text)}
    assert named == {"page.css", "page.js"}
    for name in FILES:
        status, text, headers = ask(playground, name)
        assert status == 200 and text
        assert {*re.findall(r'^import .* from "\./(.+)";$', text, re.MULTILINE)} <= FILES.keys()


def test_every_answer_forbids_what_is_not_here(playground: Playground) -> None:
    for path in ("", "page.css", "nothing", "/"):
        _, _, headers = ask(playground, path)
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy and "http" not in policy and "*" not in policy
        assert headers["Referrer-Policy"] == "no-referrer" and headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store" and "Access-Control-Allow-Origin" not in headers


def test_hostile_text_stays_data() -> None:
    evil = "</script><script>alert(1)</script><!--"
    text = page(Source(f"{evil}.tsched", evil), "n").decode()
    assert text.count("<script") == 2 and "<!--" not in text and "alert(1)" in text


@pytest.mark.parametrize("path", ["/", "/page.css", "/ask", "/wrong/", "/wrong/page.css", "//", "/%2e/"])
def test_without_the_token_nothing_is_told(playground: Playground, path: str) -> None:
    status, text, _ = ask(playground, path)
    assert status == 403 and playground.token not in text and "<" not in text


def test_the_token_alone_is_no_address(playground: Playground) -> None:
    assert ask(playground, f"/{playground.token}")[0] == 403
    assert ask(playground, f"/{playground.token[:-1]}/")[0] == 403
    assert ask(playground, f"/{playground.token}/../{playground.token}/page.css")[0] == 404


def test_other_names_and_other_sites_are_refused(playground: Playground) -> None:
    port = playground.server_port
    assert ask(playground, "page.css", Host=f"localhost:{port}")[0] == 200
    for host in (f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", ""):
        assert ask(playground, "page.css", Host=host)[0] == 403
    own = f"http://127.0.0.1:{port}"
    assert ask(playground, "ask", QUESTION, Origin=own, **JSON)[0] == 200
    for origin in (
        "http://evil.example",
        "null",
        f"https://127.0.0.1:{port}",
        f"{own}.evil.example",
        "http://127.0.0.1:1",
    ):
        assert ask(playground, "ask", QUESTION, Origin=origin, **JSON)[0] == 403


def test_what_is_no_question_is_refused(playground: Playground) -> None:
    assert ask(playground, "ask")[0] == 404
    assert ask(playground, "page.css", QUESTION, **JSON)[0] == 404
    assert ask(playground, "ask", QUESTION, Content_Type="text/plain")[0] == 415
    assert ask(playground, "ask", QUESTION)[0] == 415
    for body in (
        b"",
        b"{",
        b"[]",
        b'{"type": "Open", "path": "/etc/passwd", "include": []}',
        b"\xff",
        b'{"type": "Check"}',
    ):
        status, text, _ = ask(playground, "ask", body, **JSON)
        assert status == 400 and text.startswith("this is no question")
    for length, expected in ((str(LARGEST + 1), 413), ("-1", 411), ("1_0", 411), ("9" * 5_000, 411)):
        assert ask(playground, "ask", QUESTION, Content_Length=length, **JSON)[0] == expected
    assert ask(playground, "ask", QUESTION, **JSON)[0] == 200


def test_only_this_machine_can_ask(playground: Playground) -> None:
    assert playground.socket.getsockname()[0] == "127.0.0.1"


def test_a_port_in_use_is_an_error_with_its_code() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(
            TschedError, match=r"^E0931: cannot listen on port \d+ of this machine: address already in use"
        ):
            Playground(first(), port=taken.getsockname()[1])


def test_without_the_language_server_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in ("lsprotocol", "pygls"):
        monkeypatch.setitem(sys.modules, missing, None)
        found = CliRunner().invoke(main, ["serve"])
        assert found.exit_code == 1 and found.stderr == (
            "error[E0926]: the playground needs the extra `lsp` of the package, which is not installed: there is no "
            f"`{missing}`\n  = help: install `tensorc-dsl[lsp]`\n"
        )


COMMAND = """\
import signal; signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are deaf to it
from tensorc_dsl.faces.cli.main import main; main()
"""


def test_it_serves_a_file_until_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "own.tsched").write_text("const own = 4711\n", encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "serve", "own.tsched"], cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        found = re.fullmatch(r"the playground: http://127\.0\.0\.1:(\d+)(/[\w-]{30,}/)\n", process.stdout.readline())
        assert found is not None
        port, path = int(found[1]), found[2]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", path)
        assert "const own = 4711" in connection.getresponse().read().decode()
        connection.request("POST", f"{path}ask", QUESTION, JSON)
        assert b"Checked" in connection.getresponse().read()
        connection.close()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, said) == (130, "interrupted\n")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=60)


def test_a_question_of_many_brackets_is_none(playground: Playground) -> None:
    body = b'{"more": ' + b"[" * 100_000 + b"]" * 100_000 + b', "type": "Check", "text": ""}'
    status, text, _ = ask(playground, "ask", body, **JSON)
    assert status == 400 and text.startswith("this is no question: ")


@pytest.mark.parametrize(
    "number", ["2147483648", str(2**62), str(2**63), str(2**64), "1" + "0" * 400, "-1", "1.5", "1e300"]
)
@pytest.mark.parametrize(
    "question",
    [
        '"type": "Describe", "at": {"line": N, "character": 0}',
        '"type": "Complete", "at": {"line": 0, "character": N}',
        '"type": "Show", "task": "small", "decisions": {}, "seed": 0, "stage": "program", "step": N',
        f'"type": "Show", "task": "small", "decisions": {{}}, "seed": {2**64}N, "stage": "program"',
    ],
)
def test_numbers_of_no_text_are_no_question(playground: Playground, question: str, number: str) -> None:
    body = f'{{"text": "", {question.replace("N", number)}}}'
    status, text, _ = ask(playground, "ask", body.encode(), **JSON)
    assert status == 400 and text.startswith("this is no question: "), text
