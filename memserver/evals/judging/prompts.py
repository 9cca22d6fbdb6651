"""What a model that judges is told: `prompts/judges/`, one file for each rule.

A claim's kind is the rule, and where a rule has several cases `rule:case` (`longmemeval:multi-session`).
"""

from memserver.errors import InvalidInput
from memserver.prompts import Prompts
from memserver.tasks import Claim

RULES = ("answer", "msc", "nq", "locomo", "longmemeval")
DEFAULT_RULE = RULES[0]
ABSTENTION = "abstention"


def is_abstention(claim: Claim) -> bool:
    """Whether the right answer is that it can't be known."""
    return claim.kind.partition(":")[2] == ABSTENTION


def judge_prompt(prompts: Prompts, claim: Claim) -> str:
    """The whole question to a judge.

    Raises:
        InvalidInput: there is no such rule.
        SetupError: the prompt is missing or broken.
    """
    rule, _, case = claim.kind.partition(":")
    rule = rule or DEFAULT_RULE
    if rule not in RULES:
        raise InvalidInput(f"There is no rule {rule!r} for judges.", hint=f"There are {RULES}.")
    return prompts.render(
        f"judges/{rule}.md",
        question=claim.question,
        golds=claim.gold,
        answer=claim.answer.strip() or "(nothing)",
        case=case,
    )
