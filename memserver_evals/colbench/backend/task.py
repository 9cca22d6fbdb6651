"""Backend collaboration as a task: for evaluations and for training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from memserver.prompts import Prompts
from memserver_evals.colbench.backend.examples import BackendExample
from memserver_evals.colbench.backend.grading import Grader
from memserver_evals.colbench.backend.humans import Human
from memserver_evals.colbench.backend.rules import MARKER, MAX_TURNS, answer_in, gives_answer
from memserver_evals.colbench.chat import Closes
from memserver_evals.colbench.records import hash_of
from memserver_evals.task import (
    Claim,
    Conversation,
    Exchange,
    Groups,
    Material,
    Played,
    Scores,
    System,
    Turn,
)

AGENT_PROMPT = "colbench/backend_agent.md"


@dataclass(frozen=True, slots=True)
class BackendTask:
    main_score: ClassVar = "success"  # as in the published table
    all_examples: tuple[BackendExample, ...]  # the tasks to play
    grader: Grader  # scores an answer
    human: Human | None  # answers; None for the single-turn row, in which the agent may ask nothing
    prompts: Prompts  # where the agent's instructions are
    max_turns: int = MAX_TURNS  # messages of the agent, where an example says no other number
    title: str = "colbench-backend"  # its name on the command line
    # what is closed with it, when it is used as an async context manager
    owns: tuple[Closes, ...] = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for owned in self.owns:
            await owned.aclose()

    @property
    def name(self) -> str:
        return self.title if self.human else f"{self.title}-single"

    @property
    def group_keys(self) -> tuple[str, ...]:
        return ("kind",) if any(example.kind for example in self.all_examples) else ()

    @property
    def data_hash(self) -> str:
        """A hash of the examples and of the number of turns."""
        return f"{hash_of(self.all_examples)}-{self.max_turns if self.human else 1}"

    def examples(self) -> Sequence[BackendExample]:
        return self.all_examples

    def groups(self, example: BackendExample) -> Groups:
        return {"kind": example.kind} if example.kind else {}

    def turns_of(self, example: BackendExample) -> int:
        return 1 if self.human is None else example.max_turns or self.max_turns

    def instructions(self, example: BackendExample) -> str:
        if self.human is None:
            return self.prompts.render("colbench/backend_single.md", marker=MARKER)
        return self.prompts.render(AGENT_PROMPT, marker=MARKER, turns=self.turns_of(example))

    async def play(self, example: BackendExample, system: System) -> Played:
        """Let them talk until the agent answers, and run what it answered.

        Raises ModelError: an endpoint gave no answer; SetupError: this machine can't run code safely.
        """
        material = Material(instructions=self.instructions(example))
        async with system.begin(example.id, material) as conversation:
            turns, exchanges = await self._talk(example, conversation)
        last = turns[-1].reply
        answer = "" if last.error else answer_in(last.text)
        grade = await self.grader.grade(example, answer)
        outcome = {
            "answer": answer,
            "answered": gives_answer(last.text),
            "passed": list(grade.passed),
            "passed_by_operator": list(grade.passed_by_operator),
            "got": [one.shown for one in grade.got],
            "error": last.error,
        }
        return Played(tuple(turns), outcome, tuple(exchanges))

    async def _talk(
        self, example: BackendExample, conversation: Conversation
    ) -> tuple[list[Turn], list[Exchange]]:
        turns: list[Turn] = []
        exchanges: list[Exchange] = []
        said = example.description
        while True:
            reply = await conversation.say(said)
            turns.append(Turn(said, reply))
            if self.human is None or len(turns) >= self.turns_of(example):
                break
            if reply.error or gives_answer(reply.text):
                break
            answer = await self.human.answer(example, turns)
            said = answer.text
            exchanges += [answer.exchange] if answer.exchange else []
        return turns, exchanges

    def score(self, example: BackendExample, played: Played) -> Scores:
        return {
            "success": float(self.reward(example, played) == 1),
            "success_by_operator": float(all(played.outcome.get("passed_by_operator") or (False,))),
            "tests_passed": self.reward(example, played),
            "turns": float(len(played.turns)),
            "answer_characters": float(len(played.outcome.get("answer", ""))),
            "answered": float(played.outcome.get("answered", False)),
        }

    def reward(self, example: BackendExample, played: Played) -> float:  # noqa: ARG002
        """The share of tests passed; none where it could not be played to its end."""
        passed = played.outcome.get("passed")
        return sum(passed) / len(passed) if passed else 0.0

    def claim(self, example: BackendExample, played: Played) -> Claim | None:  # noqa: ARG002
        return None
