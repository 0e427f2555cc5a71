"""The messages between parent and child processes: MessagePack frames of these types only.

A reply is a frame: its length (8 bytes, little-endian) and its bytes. In a request, between the two, stand the seconds that
it may take, as a double. Nothing that a child says is ever unpickled, so one that a kernel has run wild in can at worst send
a wrong answer or nonsense, and nonsense is taken for a crash. A builder, which runs no kernel, unpacks what the
parent packed.
"""

from __future__ import annotations

import struct
from typing import Literal

import msgspec

from tensorc_dsl.backend.protocol import Code
from tensorc_dsl.ir.target import Target

MAX_FRAME = 1 << 30

HEAD = struct.Struct("<Qd")
"""What precedes a request: its length and its seconds."""


class Build(msgspec.Struct, tag=True, frozen=True):
    """To a builder: compile a kernel of a task, packed as `backend.once` does it."""

    task: str
    kernel: bytes
    parts: int
    target: Target
    threads: int


class Prepare(msgspec.Struct, tag=True, frozen=True):
    """To a runner: from now on kernels compute this unscheduled program, on inputs made from the seed.

    Of a program with open dimensions, at the sizes of `reference.open_sizes`. `kind` is that of their target; the linear
    algebra of the reference has so many `threads`.
    """

    program: str
    kind: str
    seed: int
    threads: int


class Run(msgspec.Struct, tag=True, frozen=True):
    """To a runner: check and time a kernel; `best` is the time to beat, if there is one. It is checked at `extremes`,
    too, unless its schedule says that inputs have none.
    """

    code: Code
    threads: int
    best: float | None
    extremes: bool = True


Request = Build | Prepare | Run


class Ready(msgspec.Struct, tag=True, frozen=True):
    """From any child: started, or prepared. `compared` is the share of the results that checks compare with numbers."""

    compared: float = 1.0


class Built(msgspec.Struct, tag=True, frozen=True):
    """From a builder: the code for a runner."""

    code: Code


class Failed(msgspec.Struct, tag=True, frozen=True):
    """From any child: the candidate failed."""

    status: Literal["compile_error", "wrong_result", "crash", "refused"]
    message: str
    max_error: float | None = None


class Ran(msgspec.Struct, tag=True, frozen=True):
    """The result was right; seconds of each timed call, fewer where it is far slower than the best (`censored`)."""

    times: tuple[float, ...]
    max_error: float
    censored: bool = False


class Exhausted(msgspec.Struct, tag=True, frozen=True):
    """From any child, which ends: the request takes more memory than it may have."""


class Bug(msgspec.Struct, tag=True, frozen=True):
    """From any child: a bug, an exception that no candidate should be able to cause."""

    traceback: str


Reply = Ready | Built | Failed | Ran | Exhausted | Bug


def encode(message: msgspec.Struct) -> bytes:
    """A reply as one frame."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(8, "little") + body


def encode_request(message: msgspec.Struct, seconds: float) -> bytes:
    """A request that may take that many seconds."""
    body = msgspec.msgpack.encode(message)
    return HEAD.pack(len(body), seconds) + body


requests = msgspec.msgpack.Decoder(Request)
replies = msgspec.msgpack.Decoder(Reply)
