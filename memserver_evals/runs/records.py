"""What is kept of a played example, as one line of JSON. The same value gives the same line, byte by byte."""

import json
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from memserver_evals.task import Played

_PLAYED = TypeAdapter(Played)


@dataclass(frozen=True, slots=True)
class Job:
    system: str
    example: str


@dataclass(frozen=True, slots=True)
class PlayedRecord:
    job: Job
    played: Played

    def line(self) -> str:
        return dump(
            {
                "system": self.job.system,
                "example": self.job.example,
                "played": _PLAYED.dump_python(self.played, mode="json"),
            }
        )

    @classmethod
    def read(cls, line: str) -> "PlayedRecord":
        """From a line. Raises ValueError."""
        fields = json.loads(line)
        try:
            job = Job(fields["system"], fields["example"])
            return cls(job, _PLAYED.validate_python(fields["played"]))
        except (KeyError, TypeError, ValidationError) as error:
            raise ValueError(f"no record of a played example: {error}") from error


def dump(value: Any) -> str:  # noqa: ANN401 - JSON
    """JSON on one line, unescaped but for what some readers take for the end of a line.

    A lone surrogate, which has no UTF-8, becomes "?".
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = text.replace("\x85", "\\u0085").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return text.encode("utf-8", "replace").decode("utf-8")
