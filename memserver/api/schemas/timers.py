"""Timers as the API's models."""

from datetime import datetime
from typing import Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, model_validator

from memserver.api.schemas.agents import LongText, Moment, Request
from memserver.storage.timers import Timer


class TimerIn(Request):
    """What an agent is to be reminded of, and when: `at` a time, or `in_seconds`."""

    text: LongText = Field(description="What it reads then.")
    at: Moment | None = Field(default=None, description="When, with a zone.")
    in_seconds: float | None = Field(default=None, gt=0, le=315_360_000, description="From now.")

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"in_seconds": 86400, "text": "Ask how it went."}]},
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.at is None) == (self.in_seconds is None):
            raise ValueError("a timer has either `at` or `in_seconds`")
        return self


class TimerOut(BaseModel):
    """A timer that has not gone off yet."""

    id: UUID
    at: datetime
    text: str = Field(examples=["Ask how it went."])
    created_at: datetime

    @classmethod
    def read(cls, timer: Timer) -> Self:
        """From storage."""
        return cls(id=timer.id, at=timer.due, text=timer.text, created_at=timer.created_at)


class TimerPage(BaseModel):
    """A page of timers; `next` is the cursor of the following page, or null."""

    items: list[TimerOut]
    next: UUID | None
