"""Timers."""

from datetime import datetime
from uuid import UUID

from memserver.client.models.base import Record


class Timer(Record):
    """A timer that has not gone off yet."""

    id: UUID
    at: datetime
    text: str
    created_at: datetime
