"""Identifiers made by the application: UUID version 7 (RFC 9562), which sort by time."""

import secrets
import time
from uuid import UUID


def new_id() -> UUID:
    """A fresh UUIDv7: 48 bits of Unix milliseconds, then 74 random bits."""
    milliseconds = time.time_ns() // 1_000_000
    random = secrets.randbits(74)
    value = milliseconds << 80 | 0x7 << 76 | (random >> 62) << 64 | 0b10 << 62
    return UUID(int=value | random & (1 << 62) - 1)
