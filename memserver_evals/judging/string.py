"""The judge that compares strings: it needs no model and is strict."""

from typing_extensions import override

from memserver_evals.judging.base import Judge, Verdict
from memserver_evals.judging.prompts import is_abstention
from memserver_evals.scoring.abstention import abstains
from memserver_evals.scoring.text import contains
from memserver_evals.task import Claim


class StringJudge(Judge):
    """Right is an answer in which a right one stands, word for word (`scoring.text.contains`).

    Where saying that it can't be known is right, it is right to say so in one of the usual ways. It knows no
    paraphrase and no other order of words, and takes a right word in a wrong sentence for right.
    """

    @property
    @override
    def name(self) -> str:
        return "string"

    @override
    async def judge(self, claim: Claim) -> Verdict:
        if is_abstention(claim):
            return Verdict(abstains(claim.answer))
        return Verdict(contains(claim.answer, claim.gold))
