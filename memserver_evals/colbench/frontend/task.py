"""Frontend collaboration as a task: for evaluations and for training."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from memserver.prompts import Prompts
from memserver_evals.colbench.chat import Closes
from memserver_evals.colbench.frontend.examples import FrontendExample
from memserver_evals.colbench.frontend.humans import NO_PAGE, Viewer
from memserver_evals.colbench.frontend.rendering import Renderer, RenderingFailed
from memserver_evals.colbench.frontend.similarity import Similarity, black_picture
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

MAX_TURNS = 10
_PAGE = re.compile(r"<html\b.*?(?:</html\s*>|\Z)", re.DOTALL | re.IGNORECASE)


def page_in(text: str) -> str | None:
    found = _PAGE.search(text)
    return found[0] if found else None


@dataclass(frozen=True, slots=True)
class FrontendTask:
    """An agent writes a page, hears how its picture differs, and writes it again."""

    main_score: ClassVar = "similarity"  # as in the published table
    group_keys: ClassVar = ("measure",)  # figures of two measures never share a row
    all_examples: tuple[FrontendExample, ...]  # the tasks to play
    renderer: Renderer  # makes pictures of pages
    similarity: Similarity  # compares the last one with the page in mind
    viewer: Viewer | None  # says how they differ; None for the single-turn row
    prompts: Prompts  # where the agent's instructions are
    max_turns: int = MAX_TURNS  # messages of the agent
    title: str = "colbench-frontend"  # its name on the command line
    # what is closed with it, when it is used as an async context manager
    owns: tuple[Closes, ...] = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for owned in self.owns:
            await owned.aclose()

    @property
    def name(self) -> str:
        return self.title if self.viewer else f"{self.title}-single"

    @property
    def data_hash(self) -> str:
        turns = self.max_turns if self.viewer else 1
        return f"{hash_of(self.all_examples)}-{turns}-{self.similarity.name}"

    def examples(self) -> Sequence[FrontendExample]:
        return self.all_examples

    def groups(self, example: FrontendExample) -> Groups:  # noqa: ARG002
        return {"measure": self.similarity.name}

    async def play(self, example: FrontendExample, system: System) -> Played:
        """Let the agent fix its page until its turns are used up or the human is content.

        Raises ModelError: an endpoint gave no answer; SetupError: there is no browser; RenderingFailed: the
        page in mind can't be rendered.
        """
        wanted = await self.renderer.render(example.reference, kind="reference")
        name = "colbench/frontend_agent.md" if self.viewer else "colbench/frontend_single.md"
        material = Material(instructions=self.prompts.render(name, turns=self.max_turns))
        async with system.begin(example.id, material) as conversation:
            turns, exchanges, page, made = await self._talk(example, conversation, wanted)
        similarity = await self.similarity.compare(made or black_picture(), wanted)
        outcome = {
            "page": page,
            "similarity": similarity,
            "measure": self.similarity.name,
            "rendered": made is not None,
            "error": turns[-1].reply.error,
        }
        return Played(tuple(turns), outcome, tuple(exchanges))

    async def _talk(
        self, example: FrontendExample, conversation: Conversation, wanted: bytes
    ) -> tuple[list[Turn], list[Exchange], str, bytes | None]:
        turns: list[Turn] = []
        exchanges: list[Exchange] = []
        said, page, made = example.description, "", None
        while True:
            reply = await conversation.say(said)
            turns.append(Turn(said, reply))
            newest = page_in(reply.text)
            picture = await self._picture(newest) if newest else None
            if newest and picture:
                page, made = newest, picture
            if self.viewer is None or reply.error or len(turns) >= self.max_turns:
                break
            if picture is None:
                said = NO_PAGE
                continue
            seen = await self.viewer.look(example, wanted, picture)
            exchanges += [seen.exchange] if seen.exchange else []
            if seen.content:
                break
            said = seen.text
        return turns, exchanges, page, made

    async def _picture(self, page: str) -> bytes | None:
        try:
            return await self.renderer.render(page)
        except RenderingFailed:
            return None

    def score(self, example: FrontendExample, played: Played) -> Scores:  # noqa: ARG002
        return {
            "similarity": float(played.outcome.get("similarity", 0)),
            "rendered": float(played.outcome.get("rendered", False)),
            "turns": float(len(played.turns)),
            "answer_characters": float(len(played.outcome.get("page", ""))),
        }

    def reward(self, example: FrontendExample, played: Played) -> float:  # noqa: ARG002
        return max(0.0, float(played.outcome.get("similarity", 0)))

    def claim(self, example: FrontendExample, played: Played) -> Claim | None:  # noqa: ARG002
        return None
