"""Who looks at the agent's page: somebody with another page in mind, who says how the two differ."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from memserver.llm.control_tokens import escape_control_tokens
from memserver.messages import JsonObject
from memserver.prompts import Prompts
from memserver_evals.colbench.chat import PartModel, Said
from memserver_evals.colbench.frontend.examples import FrontendExample
from memserver_evals.colbench.frontend.layouts import read_layout
from memserver_evals.task import Exchange

_LONGEST = 1000
"""Characters of one message of the simulated human, as published."""
NO_PAGE = "I see no page. Please write one, in an <html> element."


class Viewer(Protocol):
    async def look(self, example: FrontendExample, wanted: bytes, made: bytes) -> Said:
        """Compare two pictures (PNG): the one in mind, and that of the agent's newest page."""


@dataclass(frozen=True, slots=True)
class LayoutViewer:
    """A human without a model, for generated pages: names the difference that stands out most."""

    async def look(self, example: FrontendExample, wanted: bytes, made: bytes) -> Said:  # noqa: ARG002
        mine, its = read_layout(wanted), read_layout(made)
        for name in mine:
            if mine[name] != its[name]:
                return Said(_describe(name, mine, its))
        return Said("That is just what I had in mind.", content=True)


def _describe(name: str, mine: Mapping[str, str | int], its: Mapping[str, str | int]) -> str:
    want, have = mine[name], its[name]
    if name == "cards":
        return f"There should be {want} cards; I see {have}."
    if name == "sidebar":
        place = "no sidebar" if want == "none" else f"a sidebar on the {want}"
        seen = "none" if have == "none" else f"one on the {have}"
        return f"There should be {place}; I see {seen}."
    if name == "card":
        return f"The cards should be {want}; I see {have}."
    part = "background of the page" if name == "page" else name
    return f"The {part} should be {want}; I see {have}."


@dataclass(frozen=True, slots=True)
class ModelViewer:
    """A human that a model which sees pictures plays; its prompt is `colbench/frontend_human.md`."""

    model: PartModel
    prompts: Prompts

    async def look(self, example: FrontendExample, wanted: bytes, made: bytes) -> Said:
        prompt = self.prompts.render("colbench/frontend_human.md", description=example.description)
        content = [{"type": "text", "text": prompt}, as_part(wanted), as_part(made)]
        text, exchange = await self.model.ask([{"role": "user", "content": content}], "simulator")
        said = escape_control_tokens(text.strip())[:_LONGEST].strip()
        return Said(said or "I can't say.", exchange=without_pictures(exchange))


def as_part(picture: bytes) -> JsonObject:
    url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def without_pictures(exchange: Exchange) -> Exchange:
    """The exchange for the record: pictures are many times longer than all else in it."""
    prompt = tuple(
        {
            **message,
            "content": [
                part if part["type"] == "text" else {"type": "text", "text": "(a picture)"}
                for part in message["content"]
            ],
        }
        for message in exchange.prompt
    )
    return Exchange(
        prompt, exchange.answer, exchange.tokens_in, exchange.tokens_out, exchange.purpose
    )
