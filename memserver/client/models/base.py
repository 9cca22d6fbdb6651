"""What all of them have in common."""

from typing import Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")
C = TypeVar("C", bound=UUID | int | str)


class Record(BaseModel):
    """Base of what the server answers."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Page(Record, Generic[T, C]):
    """One page of a list; `next` is the cursor of the following page, or None."""

    items: list[T]
    next: C | None

    def __len__(self) -> int:
        return len(self.items)


class ErrorDetails(Record):
    """What went wrong in a turn; `code` is stable."""

    code: str
    message: str
    hint: str = ""
