"""Who may connect to whom: the addresses of schedulers, encryption, and the token that a search and its workers share.

What a worker runs is code, and Dask's schedulers and workers run what anybody sends who can connect. So connections are
encrypted by certificates of both sides (TLS, by Dask's own settings), or stay on this machine. The token is a second line: a
worker that finds itself at another scheduler than it was meant for takes no work there, and a search believes no answer of a
worker without it.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from platformdirs import user_data_path

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.base.frozen import frozen

if TYPE_CHECKING:
    from distributed.security import Security


@problem(
    "E0870",
    "tuning on other machines needs the extra `cluster` of the package, which is not installed: there is no `{missing}`",
    help="install `tensorc-dsl[cluster]`",
)
def NO_DASK(*, missing: str) -> None: ...
@problem(
    "E0871",
    "`{address}` is not encrypted and can be reached from other machines: {why}",
    help="use `tls://` with certificates of your own, as docs/cluster.md has it; or start the scheduler for this machine "
    "alone, `dask scheduler --host 127.0.0.1`, and reach it through `ssh -L`",
)
def OPEN(*, address: str, why: str) -> None: ...
@problem(
    "E0872",
    "`{address}` is no address of a scheduler, nor of a board: {why}",
    help="give one as `tcp://127.0.0.1:8786`, `tls://HOST:8786`, `local:4` for processes of this machine; to `tune`, also "
    "`ssh://HOST`",
)
def NO_ADDRESS(*, address: str, why: str) -> None: ...
@problem(
    "E0873",
    "`{address}` is encrypted, and Dask's settings have no {missing}",
    help="name the files in Dask's settings or its environment variables, as docs/cluster.md has it",
)
def NO_CERTIFICATE(*, address: str, missing: str) -> None: ...
@problem("E0874", "the token in `{path}` cannot be used: {why}", help="{repair}")
def NO_TOKEN(*, path: str, why: str, repair: str) -> None: ...


def require_dask() -> None:
    """Raises TschedError (E0870) without the extra."""
    if find_spec("distributed") is None:
        raise TschedError(NO_DASK(None, missing="distributed"))


@frozen
class Address:
    """Where a scheduler is: `here`, so many workers in this process, or else the address at which Dask connects.

    With a `wanted` target only workers take part whose target begins so.
    """

    text: str
    here: int = 0
    wanted: str = ""

    @staticmethod
    def of(text: str) -> Address:
        """The address `tcp://HOST:PORT`, `tls://HOST:PORT` or `local:N`, with `#TARGET` behind it where several are there.

        Raises TschedError (E0871, E0872): an address without encryption is one of this machine.
        """
        where, _, wanted = text.partition("#")
        if where.startswith("local:"):
            count = where.removeprefix("local:")
            if not count.isdecimal() or not 1 <= int(count) <= MOST_HERE:
                raise TschedError(NO_ADDRESS(None, address=text, why=f"`local:` takes a number from 1 to {MOST_HERE}"))
            return Address(where, int(count), wanted)
        try:
            parts = urlsplit(where)
            port = parts.port
        except ValueError as e:
            raise TschedError(NO_ADDRESS(None, address=text, why=str(e))) from None
        if parts.scheme not in ("tcp", "tls"):
            raise TschedError(NO_ADDRESS(None, address=text, why="it begins with neither `tcp://` nor `tls://`"))
        if not parts.hostname or port is None or parts.path or parts.query or parts.username:
            raise TschedError(NO_ADDRESS(None, address=text, why="it is not a host and a port"))
        found = Address(where, 0, wanted)
        found.require_private(where)
        return found

    @property
    def encrypted(self) -> bool:
        return self.text.startswith("tls://")

    def require_private(self, listening: str) -> None:
        """Raises TschedError (E0871) if a scheduler that listens at that address can be reached unencrypted."""
        if listening.startswith("tcp://") and not _is_loopback(urlsplit(listening).hostname or ""):
            own = listening == self.text
            why = "only an address of this machine, such as 127.0.0.1, is private" if own else f"it is `{listening}`"
            raise TschedError(OPEN(None, address=self.text, why=why))

    def security(self) -> Security | None:
        """What Dask encrypts with, by its settings; None where nothing is encrypted. Raises TschedError (E0873)."""
        if not self.encrypted:
            return None
        from distributed.security import Security

        found = Security(require_encryption=True)
        for role in ("client", "worker"):
            for kind in ("cert", "key"):
                if not getattr(found, f"tls_{role}_{kind}"):
                    name = f"distributed.comm.tls.{role}.{kind}"
                    raise TschedError(NO_CERTIFICATE(None, address=self.text, missing=f"`{name}`"))
        if not found.tls_ca_file:
            raise TschedError(NO_CERTIFICATE(None, address=self.text, missing="`distributed.comm.tls.ca-file`"))
        return found


MOST_HERE = 64
"""The most workers that a process starts for itself."""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# The token: a secret in a file that only its user can read.


TOKEN_BYTES = 32


def usual_token() -> Path:
    """Where the token of a user is, who may share it among machines by a common home folder."""
    return user_data_path("tensorc-dsl", appauthor=False) / "cluster.token"


def read_token(path: Path | None = None) -> bytes:
    """The token in the file; by default the user's, which is made when it is first needed.

    Raises TschedError (E0874) if there is none, or if others can read it.
    """
    at = path or usual_token()
    try:
        if path is None and not at.exists():
            at.parent.mkdir(parents=True, exist_ok=True)
            _make(at)
        if at.stat().st_mode & 0o077:
            raise TschedError(
                NO_TOKEN(None, path=str(at), why="others may read it", repair=f"`chmod 600 {at}`, and make a new one")
            )
        found = at.read_bytes().strip()
    except OSError as e:
        why = e.strerror or str(e)
        raise TschedError(
            NO_TOKEN(None, path=str(at), why=why, repair="copy the file from where the search runs")
        ) from None
    if len(found) < TOKEN_BYTES:
        repair = "make one with `openssl rand -hex 32`"
        raise TschedError(NO_TOKEN(None, path=str(at), why=f"it has less than {TOKEN_BYTES} bytes", repair=repair))
    return found


def _make(at: Path) -> None:
    """A new token at the path, unless another process makes one first."""
    beside = at.with_name(f".{at.name}.{os.getpid()}")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(secrets.token_hex(TOKEN_BYTES))
    try:
        os.link(beside, at)
    except FileExistsError:
        pass
    finally:
        beside.unlink()


def tag_of(token: bytes, *parts: bytes) -> bytes:
    """The proof that whoever sends these parts has the token (HMAC, RFC 2104)."""
    made = hmac.new(token, digestmod=hashlib.sha256)
    for part in parts:
        made.update(len(part).to_bytes(8, "little"))
        made.update(part)
    return made.digest()


def is_tagged(token: bytes, tag: bytes, parts: Sequence[bytes]) -> bool:
    """Whether the proof is that of the parts."""
    return hmac.compare_digest(tag, tag_of(token, *parts))
