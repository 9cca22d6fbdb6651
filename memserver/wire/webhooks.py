"""Event webhooks."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from memserver.wire.base import Record

EventKind = Literal["turn.ended", "approval.waiting", "document.ready", "document.failed"]


class Webhook(Record):
    """An address that hears of events; the secret that signs them is shown once, in the answer to its creation."""

    id: UUID
    url: str = Field(examples=["https://example.org/events"])
    events: list[EventKind] = Field(examples=[["turn.ended"]])
    secret: str | None = Field(default=None, repr=False)
    delivered_at: datetime | None = Field(description="When it last took one.", examples=[None])
    error: str | None = Field(description="Why it didn't take the latest one.", examples=[None])
    disabled_at: datetime | None = Field(
        default=None,
        description="When it answered 410 Gone: since then it hears of nothing.",
        examples=[None],
    )
    created_at: datetime
