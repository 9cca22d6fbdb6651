"""A model that plays a part in an environment: a simulated human or a judge, behind any endpoint."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from memserver.errors import ModelUnavailable
from memserver.messages import JsonObject
from memserver.openai_http.client import EndpointClient
from memserver_evals.task import Exchange


class Closes(Protocol):
    """What a task may own: it is closed when it is not needed any more."""

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PartModel:
    """A model of an OpenAI-compatible endpoint, asked without randomness."""

    client: EndpointClient  # of the endpoint
    model: str  # its name there
    max_tokens: int = 256  # of one answer
    temperature: float = 0  # 0 for the likeliest answer

    async def ask(self, messages: Sequence[JsonObject], purpose: str) -> tuple[str, Exchange]:
        """What it answers, and the record of that. Raises ModelError: the endpoint gave no answer."""
        body = {
            "model": self.model,
            "messages": list(messages),
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
        }
        answer = await self.client.post("/chat/completions", json.dumps(body).encode())
        try:
            message = answer["choices"][0]["message"]
            text = message.get("content") or ""
            usage = answer.get("usage") or {}
            exchange = Exchange(
                tuple(messages),
                {"role": "assistant", "content": text},
                int(usage.get("prompt_tokens") or 0),
                int(usage.get("completion_tokens") or 0),
                purpose,
            )
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ModelUnavailable(
                f"The answer of the {purpose}'s model has no message in it."
            ) from error
        return text, exchange


@dataclass(frozen=True, slots=True)
class Said:
    """What a simulated human says, and the exchange with the model that plays it, if there is one."""

    text: str
    exchange: Exchange | None = None
    content: bool = False  # whether it has nothing left to say; that ends the collaboration
