"""What all values of the API have in common; errors, and the state of the server."""

from typing import Any, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field
from typing_extensions import override

T = TypeVar("T")
C = TypeVar("C", bound=UUID | int | str)


class Record(BaseModel):
    """Base of what the server answers. A field that a newer server adds is ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", from_attributes=True)


def stored_as(name: str, *path: str) -> AliasChoices:
    """Where a field is read: by its name on the wire, or by its path in one of the server's own values."""
    return AliasChoices(name, AliasPath(*path))


class Page(Record, Generic[T, C]):
    """A page of a list; `next` is the cursor of the following page, or null."""

    items: list[T]
    next: C | None

    def __len__(self) -> int:
        return len(self.items)

    @classmethod
    @override
    def model_parametrized_name(cls, params: tuple[Any, ...]) -> str:
        """As AgentPage, which it is called in the OpenAPI document."""
        return f"{getattr(params[0], '__name__', params[0])}Page"


class ErrorDetails(Record):
    """What went wrong; `code` is stable, `message` and `hint` are for people."""

    code: str = Field(examples=["not_found"])
    message: str = Field(examples=["There is no such thing."])
    hint: str = ""


class ErrorResponse(Record):
    """The body of every answer that is not a success."""

    error: ErrorDetails


class Health(Record):
    """The server answers."""

    status: Literal["ok"]
    version: str = Field(examples=["1.0.0"])


class Component(Record):
    """One thing that the server needs."""

    name: str = Field(examples=["model"])
    ready: bool
    detail: str = Field(examples=["answers"])


class Readiness(Record):
    """Whether turns can be answered now, and if not, what is missing."""

    ready: bool
    components: list[Component]
