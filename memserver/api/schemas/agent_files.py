"""The API's resources around moving agents in and out."""

from typing import Self

from pydantic import BaseModel, Field

from memserver.agent_files.ingest import Imported
from memserver.api.schemas.agents import AgentOut


class NotCarried(BaseModel):
    """Something of a file that could not be carried as it is."""

    kind: str = Field(description="Such as tool, model, collection.", examples=["tool"])
    name: str = Field(examples=["web_search"])
    reason: str = Field(examples=["There is no tool of this name here."])


class ImportOut(BaseModel):
    """What an import made."""

    agent: AgentOut
    messages: int = Field(examples=[412])
    passages: int = Field(examples=[37])
    embedded: bool = Field(description="Whether passages were embedded anew.")
    not_carried: list[NotCarried]

    @classmethod
    def read(cls, imported: Imported) -> Self:
        """From what the import says."""
        return cls(
            agent=AgentOut.read(imported.agent),
            messages=imported.counts["messages"],
            passages=imported.counts["passages"],
            embedded=imported.embedded,
            not_carried=[
                NotCarried(kind=note.kind, name=note.name, reason=note.reason)
                for note in imported.notes
            ],
        )
