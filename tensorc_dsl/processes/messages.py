"""The protocol between parent and child processes: MessagePack frames, of types that the two agree on.

A reply is a frame: its length (8 bytes, little-endian) and its bytes. In a request, between the two, stand the seconds that
it may take, as a double. Nothing that a child says is ever unpickled, so one that a kernel has run wild in can at worst send
a wrong answer or nonsense, and nonsense is taken for a crash.
"""

from __future__ import annotations

import struct

import msgspec

MAX_FRAME = 1 << 30

HEAD = struct.Struct("<Qd")
"""What precedes a request: its length and its seconds."""


class Ready(msgspec.Struct, tag=True, frozen=True):
    """From any child: started, or prepared. `compared` is the share of the results that checks compare with numbers."""

    compared: float = 1.0


class Exhausted(msgspec.Struct, tag=True, frozen=True):
    """From any child, which ends: the request takes more memory than it may have."""


class Bug(msgspec.Struct, tag=True, frozen=True):
    """From any child: a bug, an exception that no candidate should be able to cause."""

    traceback: str


def encode(message: msgspec.Struct) -> bytes:
    """A reply as one frame."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(8, "little") + body


def encode_request(message: msgspec.Struct, seconds: float) -> bytes:
    """A request that may take that many seconds."""
    body = msgspec.msgpack.encode(message)
    return HEAD.pack(len(body), seconds) + body
