"""What a judge is: it takes a claim and gives a verdict."""

from dataclasses import dataclass
from typing import Protocol

from memserver_evals.task import Claim, Exchange


@dataclass(frozen=True, slots=True)
class Verdict:
    correct: bool | None  # None if the judge's reply was no verdict; such ones are counted apart
    reason: str = ""  # the judge's own words, or what was wrong with its reply
    exchange: Exchange | None = None  # what a model was asked and what it said


class Judge(Protocol):
    @property
    def name(self) -> str: ...

    async def judge(self, claim: Claim) -> Verdict:
        """Say whether the claim's answer is right. The same claim gets the same verdict, as far as the judge can.

        Raises ModelUnavailable: the judge can't be reached; the claim is to be put to it again; ModelTimeout:
        it gave no answer in time; likewise.
        """
