"""What a judge says of an answer, kept beside the run so that no answer is judged twice."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from pydantic import TypeAdapter

from memserver.evals.records import Job, dump
from memserver.evals.run_folder import AppendOnly, read_lines, write_whole
from memserver.tasks import Claim, Exchange


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an answer was right; `right` is None where the judge's own reply can't be read."""

    right: bool | None
    reason: str = ""
    exchanges: tuple[Exchange, ...] = ()


class Judge(Protocol):
    """Says whether an answer is right.

    Attributes:
        name: in tables, where its column is `judge_NAME`; and of its file.
        identity: all that decides what it says (its model and prompt); another one judges anew.
    """

    name: str
    identity: str

    async def judge(self, claim: Claim) -> Verdict:
        """Judge an answer. Raises MemserverError where the judge can't be asked."""
        ...


_VERDICT = TypeAdapter(Verdict)


class VerdictFile:
    """The verdicts of one judge on one run."""

    def __init__(self, folder: Path, judge: Judge) -> None:
        """Open it; verdicts of another identity are thrown away."""
        self._path = folder / f"verdicts-{judge.name}.jsonl"
        self._identity = judge.identity
        self._lines = AppendOnly(self._path)
        self.given: dict[Job, Verdict] = {}
        rows = read_lines(self._path, json.loads)
        for row in rows:
            if row["identity"] == judge.identity:
                job = Job(row["system"], row["example"])
                self.given.setdefault(job, _VERDICT.validate_python(row["verdict"]))

    async def add(self, job: Job, verdict: Verdict) -> None:
        """Keep a verdict."""
        await self._lines.append(self._line(job, verdict))
        self.given[job] = verdict

    def put_in_order(self, jobs: Sequence[Job]) -> None:
        """Once all is judged: the file in the run's order."""
        self._lines.close()
        ordered = [job for job in jobs if job in self.given]
        text = "".join(f"{self._line(job, self.given[job])}\n" for job in ordered)
        write_whole(self._path, text)

    def close(self) -> None:
        """Close it."""
        self._lines.close()

    def _line(self, job: Job, verdict: Verdict) -> str:
        return dump(
            {
                "system": job.system,
                "example": job.example,
                "identity": self._identity,
                "verdict": asdict(verdict),
            }
        )
