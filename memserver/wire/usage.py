"""Tokens that turns have used."""

import datetime

from pydantic import Field

from memserver.wire.base import Record


class DailyUsage(Record):
    """What turns used on one day, in UTC."""

    day: datetime.date = Field(examples=["2026-11-29"])
    turns: int = Field(description="Those that ended on it.", examples=[12])
    steps: int = Field(examples=[20])
    prompt_tokens: int = Field(examples=[30000])
    cached_tokens: int = Field(
        description="Of the prompts' tokens, those that the endpoint had in its cache.",
        examples=[0],
    )
    completion_tokens: int = Field(examples=[900])


class TenantUsage(Record):
    """What a tenant's turns used, day by day; days without turns are left out."""

    tenant: str = Field(examples=["acme"])
    days: list[DailyUsage]
