"""Verdicts kept beside the run, so that no answer is judged twice."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from re import sub

from pydantic import TypeAdapter

from memserver.errors import MemserverError
from memserver_evals.judging.base import Judge, Verdict
from memserver_evals.runs.player import PAUSES
from memserver_evals.runs.records import Job, dump
from memserver_evals.runs.run_folder import AppendOnly, read_lines, write_whole
from memserver_evals.systems.failing import OUTAGES, is_answer
from memserver_evals.task import Claim

_VERDICT = TypeAdapter(Verdict)


@dataclass(frozen=True, slots=True)
class Bench:
    """A judge and what decides what it says: with another identity all is judged again."""

    judge: Judge
    identity: str = ""

    @property
    def column(self) -> str:
        return f"judge_{self.judge.name}"


@dataclass
class VerdictFile:
    """The verdicts of one judge on one run; `given` grows."""

    path: Path
    bench: Bench
    given: dict[Job, Verdict]
    _lines: AppendOnly = field(repr=False)

    async def add(self, job: Job, verdict: Verdict) -> None:
        await self._lines.append(self._line(job, verdict))
        self.given[job] = verdict

    def put_in_order(self, jobs: Sequence[Job]) -> None:
        ordered = [job for job in jobs if job in self.given]
        text = "".join(f"{self._line(job, self.given[job])}\n" for job in ordered)
        write_whole(self.path, text)

    def _line(self, job: Job, verdict: Verdict) -> str:
        return dump(
            {
                "system": job.system,
                "example": job.example,
                "identity": self.bench.identity,
                "verdict": _VERDICT.dump_python(verdict, mode="json"),
            }
        )


@contextmanager
def open_verdicts(folder: Path, bench: Bench) -> Iterator[VerdictFile]:
    """The file of one judge; verdicts of another identity don't count."""
    path = folder / f"verdicts-{sub(r'[^A-Za-z0-9._-]+', '-', bench.judge.name)}.jsonl"
    lines = AppendOnly(path)
    try:
        given: dict[Job, Verdict] = {}
        for row in read_lines(path, json.loads):
            if row["identity"] == bench.identity:
                job = Job(row["system"], row["example"])
                given.setdefault(job, _VERDICT.validate_python(row["verdict"]))
        yield VerdictFile(path, bench, given, lines)
    finally:
        lines.close()


async def judge_all(
    verdicts: VerdictFile, claims: Mapping[Job, Claim], at_once: int, on_done: Callable[[], None]
) -> None:
    """Judge every claim that has no verdict yet.

    Raises MemserverError: the judge can't be asked; what it said is kept.
    """
    turn = asyncio.Semaphore(at_once)

    async def one(job: Job, claim: Claim) -> None:
        async with turn:
            await verdicts.add(job, await _verdict(verdicts.bench.judge, claim))
            on_done()

    left = {job: claim for job, claim in claims.items() if job not in verdicts.given}
    try:
        async with asyncio.TaskGroup() as group:
            for job, claim in left.items():
                group.create_task(one(job, claim))
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from failed


async def _verdict(judge: Judge, claim: Claim) -> Verdict:
    for pause in PAUSES:
        try:
            return await judge.judge(claim)
        except OUTAGES:
            await asyncio.sleep(pause)
        except MemserverError as error:
            if not is_answer(error):
                raise
            return Verdict(None, error.message)
    return await judge.judge(claim)
