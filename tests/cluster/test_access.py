"""Addresses, tokens and messages: what is private, who is believed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.tuning.cluster.access import Address, read_token, usual_token
from tensorc_dsl.tuning.cluster.pool import reason_of
from tensorc_dsl.tuning.cluster.station import Made, RoofOrder, Standing, answer_of, order_of, sealed
from tests.cluster.stub import TOKEN, Stub


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "localhost", "[::1]"])
def test_loopback_needs_no_encryption(host: str) -> None:
    assert Address.of(f"tcp://{host}:8786").security() is None


@pytest.mark.parametrize(
    "host", ["node7", "10.0.0.1", "0.0.0.0", "[::]", "[2001:db8::1]", "localhost.evil.org", "127.0.0.1.evil.org"]
)
def test_other_hosts_do(host: str) -> None:
    with pytest.raises(TschedError, match="E0871"):
        Address.of(f"tcp://{host}:8786")
    assert Address.of(f"tls://{host}:8786").encrypted


def test_a_scheduler_that_listens_to_the_network_is_found_out() -> None:
    found = Address.of("tcp://127.0.0.1:8786")
    found.require_private("tcp://127.0.0.1:8786")
    found.require_private("inproc://192.0.2.1/1/2")
    with pytest.raises(TschedError, match=r"E0871.*it is `tcp://192.0.2.1:8786`"):
        found.require_private("tcp://192.0.2.1:8786")


@pytest.mark.parametrize(
    "text",
    ["", "node7", "127.0.0.1:8786", "http://127.0.0.1:1", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:x", "tcp://127.0.0.1:99999",
     "tcp://127.0.0.1:1/x", "tcp://u@127.0.0.1:1", "local:", "local:0", "local:65", "local:-1", "local:two"],
)  # fmt: skip
def test_no_addresses(text: str) -> None:
    with pytest.raises(TschedError, match="E0872"):
        Address.of(text)


def test_a_target_stands_behind_an_address() -> None:
    assert Address.of("local:3#llvm:znver4") == Address("local:3", 3, "llvm:znver4")
    assert Address.of("tcp://127.0.0.1:1#cuda") == Address("tcp://127.0.0.1:1", 0, "cuda")


def test_the_users_token_is_made_once_and_is_the_users() -> None:
    first = read_token()
    assert read_token() == first and len(first) == 64 and usual_token().stat().st_mode & 0o777 == 0o600
    assert [p.name for p in usual_token().parent.glob("*.token*")] == ["cluster.token"]


def test_tokens_that_cannot_be_used(tmp_path: Path) -> None:
    at = tmp_path / "token"
    with pytest.raises(TschedError, match=r"E0874.*No such file"):
        read_token(at)
    at.touch(mode=0o600)
    with pytest.raises(TschedError, match=r"E0874.*less than 32 bytes"):
        read_token(at)
    at.write_bytes(TOKEN)
    assert read_token(at) == TOKEN
    os.chmod(at, 0o640)
    with pytest.raises(TschedError, match=r"E0874.*others may read it"):
        read_token(at)


def test_only_what_has_the_token_is_read() -> None:
    order = RoofOrder("x", "program", 1, 0.2)
    data = sealed(TOKEN, order)
    assert order_of(TOKEN, data) == order
    for wrong in (b"", data[:31], data[:-1], data[:40] + b"!" + data[41:], sealed(b"other", order)):
        with pytest.raises(PermissionError):
            order_of(TOKEN, wrong)
    made = Made(None, None, 1.0)
    assert answer_of(TOKEN, sealed(TOKEN, made)) == made


def test_a_worker_says_that_it_has_the_token() -> None:
    station = Stub(0)
    assert station.facts.is_proved(TOKEN) and not station.facts.is_proved(b"other")
    station.close()


def test_drift_and_hanging() -> None:
    assert Standing().drift is None and not Standing().hangs
    assert Standing(least=2.0, last=3.0).drift == 1.5
    assert Standing("x", 3.0, 2.0).hangs and not Standing("x", 1.0, 2.0).hangs


def test_what_a_time_limit_cancels_is_no_reason() -> None:
    late = TimeoutError()
    late.__cause__ = asyncio.CancelledError()
    assert reason_of(late) == "it does not answer"
