"""Bodies of requests for messages and events."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from memserver.api.schemas.agents import LongText, Moment, RequestBody

Expiry = Annotated[
    Moment | None,
    Field(description="When it is deleted, and what it is answered; with a zone; left out: never."),
]


class PictureIn(RequestBody):
    """A picture: PNG, JPEG, GIF or WebP."""

    url: str = Field(
        description="The picture itself, as a data: URL with base64.",
        examples=["data:image/png;base64,iVBORw0KGgo…"],
    )
    name: str = Field(
        default="",
        max_length=200,
        description="A file's name, or what it shows: what stands for it in texts.",
        examples=["cat.png"],
    )


class MessageIn(RequestBody):
    """Something a person says to the agent."""

    text: LongText = Field(description="What they say.", examples=["Hi, I am Ada."])
    pictures: list[PictureIn] = Field(
        default_factory=list, description="What they show with it.", examples=[[]]
    )
    stream: bool = Field(default=False, description="Answer as server-sent events.")
    expires_at: Expiry = None
    created_at: Moment | None = Field(
        default=None,
        description="When they say it, with a zone; only to an agent whose option clock is "
        '"messages". It is the time while the agent answers. Left out: now.',
    )


class EventIn(RequestBody):
    """Something that happened, without anybody's saying it to the agent."""

    type: Literal["login", "upload", "custom"] = Field(
        description="login: the person is there; upload: a file has come; custom: what `text` says."
    )
    text: LongText | None = Field(
        default=None, description="More of it; custom needs one.", examples=["rules.pdf"]
    )
    expires_at: Expiry = None
    stream: bool = Field(default=False, description="Answer as server-sent events.")

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"type": "upload", "text": "rules.pdf"}]}
    )

    @model_validator(mode="after")
    def _says_what_happened(self) -> Self:
        if self.type == "custom" and not (self.text or "").strip():
            raise ValueError("an event of type custom needs a text that says what happened")
        return self


class PastMessage(RequestBody):
    """A message from before, with its own time."""

    role: Literal["user", "assistant"]
    text: LongText = Field(examples=["I moved to Graz."])
    created_at: Moment | None = Field(default=None, description="With a zone; left out: now.")
    expires_at: Moment | None = Field(default=None, description="With a zone; left out: never.")


class ImportIn(RequestBody):
    """Past messages, oldest first."""

    messages: Annotated[list[PastMessage], Field(fail_fast=True)] = Field(
        min_length=1, max_length=10_000
    )


Place = Annotated[int, Field(ge=0, lt=2**62)]


class SelectedIn(RequestBody):
    """Messages by their positions, or all of turns."""

    positions: list[Place] = Field(default_factory=list, max_length=1000, examples=[[1000, 1001]])
    turns: list[Place] = Field(default_factory=list, max_length=100)

    @model_validator(mode="after")
    def _names_some(self) -> Self:
        if not (self.positions or self.turns):
            raise ValueError("name messages by `positions`, or exchanges by `turns`")
        return self


class ExpiryIn(SelectedIn):
    """When messages expire."""

    expires_at: Moment | None = Field(
        description="With a zone; null: they don't.", examples=["2030-01-01T00:00:00Z"]
    )


class DeleteIn(SelectedIn):
    """Messages that are deleted."""

    redact: bool = Field(
        default=False, description="Leave a placeholder in each place, which the agent reads."
    )
