"""Identifiers made by the application: UUID version 7 (RFC 9562), which sort by time."""

import secrets
import time
from uuid import UUID

_COUNTER_BITS = 12
_last = 0


def new_id() -> UUID:
    """A fresh UUIDv7: 48 bits of Unix milliseconds, a 12-bit counter, 62 random bits.

    Ids made in one process sort in the order in which they were made: more than 4,096 in a
    millisecond, or a clock set back, make the time part run ahead (RFC 9562, section 6.2).
    """
    global _last
    now = time.time_ns() // 1_000_000 << _COUNTER_BITS
    _last = max(now, _last + 1)
    milliseconds, counter = _last >> _COUNTER_BITS, _last & (1 << _COUNTER_BITS) - 1
    value = milliseconds << 80 | 0x7 << 76 | counter << 64 | 0b10 << 62
    return UUID(int=value | secrets.randbits(62))


def nth_id(parent: UUID, number: int) -> UUID:
    """The id of a parent's part, always the same: its time and order, so that parts sort by `number` after it.

    The parent is a UUIDv7; its lowest 32 bits are given up, which leaves 30 random ones. Numbers are from 0, below 2**32 - 1.
    """
    return UUID(int=parent.int >> 32 << 32 | number + 1)
