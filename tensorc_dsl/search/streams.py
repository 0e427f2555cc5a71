"""Named random streams, so that the draws of one part of a search do not depend on those of another part."""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, task: str, slot: str) -> np.random.Generator:
    """The generator for one purpose (`slot`) of one run: equal arguments give equal streams on every machine.

    Philox (Salmon et al., SC 2011) is counter-based: any 128-bit key is as good as another, so a digest can be the key.
    """
    key = hashlib.blake2b(f"{seed}\0{task}\0{slot}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))
