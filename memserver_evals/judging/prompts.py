"""What a model that judges is asked: `prompts/judges/`, one file for each rule.

A claim's kind is the rule, and where a rule has several cases `rule:case` (`longmemeval:multi-session`).
"""

from hashlib import sha256

from memserver.errors import InvalidInput
from memserver.prompts import Prompts
from memserver_evals.task import Claim

RULES = ("answer", "msc", "nq", "locomo", "longmemeval")
DEFAULT_RULE = RULES[0]
ABSTENTION = "abstention"
CASES = ("", ABSTENTION, "single-session-preference", "temporal-reasoning", "knowledge-update")
"""Those for which some rule has words of its own."""


def is_abstention(claim: Claim) -> bool:
    return claim.kind.partition(":")[2] == ABSTENTION


def prompts_hash(prompts: Prompts) -> str:
    """A hash of all rules as they are worded: with other words a judge says other things."""
    claims = (Claim("q", ("g",), "a", f"{rule}:{case}") for rule in RULES for case in CASES)
    worded = "".join(judge_prompt(prompts, claim) for claim in claims)
    return sha256(worded.encode()).hexdigest()[:16]


def judge_prompt(prompts: Prompts, claim: Claim) -> str:
    """The whole question to a judge.

    Raises InvalidInput: there is no such rule; SetupError: the prompt is missing or broken.
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
