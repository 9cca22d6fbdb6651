"""Who answers the agent: the one that knows the hidden reference, and says only what is asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from memserver.llm.control_tokens import escape_control_tokens
from memserver.prompts import Prompts
from memserver_evals.colbench.backend.examples import BackendExample
from memserver_evals.colbench.backend.rules import as_dialogue
from memserver_evals.colbench.chat import PartModel, Said
from memserver_evals.task import Turn

_LONGEST = 400
"""Characters of one message of the simulated human, as published."""


class Human(Protocol):
    async def answer(self, example: BackendExample, turns: Sequence[Turn]) -> Said:
        """Answer the agent's newest message; the turns are all so far, never empty."""


@dataclass(frozen=True, slots=True)
class ModelHuman:
    """A human that a model plays; its prompt is `colbench/backend_human.md`.

    What it says is cut, and what looks like a control token in it is made harmless, since the agent is
    trained on the conversation.
    """

    model: PartModel
    prompts: Prompts

    async def answer(self, example: BackendExample, turns: Sequence[Turn]) -> Said:
        prompt = self.prompts.render(
            "colbench/backend_human.md",
            description=example.description,
            reference=example.reference,
            dialogue=as_dialogue(turns),
        )
        text, exchange = await self.model.ask([{"role": "user", "content": prompt}], "simulator")
        return Said(
            escape_control_tokens(text.strip())[:_LONGEST].strip() or "I don't know.", exchange
        )
