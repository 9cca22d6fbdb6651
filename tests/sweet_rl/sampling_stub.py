"""A scripted sampler behind HTTP, as vLLM's chat completions: what an endpoint sampler is tested against."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sweet_rl.sampling.samplers import Sampled, Sampling
from tests.sweet_rl.scripted_sampler import Rule, ScriptedSampler


@dataclass
class SamplingStub:
    """Serves a rule.

    Attributes:
        rule: of the base and of every adapter.
        adapters: that were loaded, by name.
        asked: the bodies of the requests.
        broken: answer without texts.
    """

    rule: Rule
    adapters: dict[str, str] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    broken: bool = False

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/health", lambda _: Response()),
                Route("/v1/models", self._models),
                Route("/v1/load_lora_adapter", self._load, methods=["POST"]),
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
            ]
        )

    async def _models(self, _: Request) -> Response:
        cards = [{"id": name, "parent": "base"} for name in self.adapters]
        return JSONResponse({"data": [{"id": "base", "max_model_len": 4096}, *cards]})

    async def _load(self, request: Request) -> Response:
        asked = await request.json()
        self.adapters[asked["lora_name"]] = asked["lora_path"]
        return Response("loaded")

    async def _complete(self, request: Request) -> Response:
        asked = await request.json()
        self.asked.append(asked)
        if asked["model"] not in {"base", *self.adapters}:
            return JSONResponse({"error": {"message": "no such model"}}, 404)
        if self.broken:
            return JSONResponse({"choices": [{"index": 0}]})
        drawn = await ScriptedSampler(self.rule).sample(
            tuple(asked["messages"]),
            asked.get("n", 1),
            Sampling(asked["temperature"], asked["max_tokens"]),
            asked.get("seed", 0),
        )
        return JSONResponse(_answer(drawn))


def _answer(drawn: Sequence[Sampled]) -> dict[str, Any]:
    choices = []
    for index, each in enumerate(drawn):
        choices.append(
            {
                "index": index,
                "message": {"role": "assistant", "content": each.text},
                "finish_reason": "stop",
            }
        )
    usage = {
        "prompt_tokens": drawn[0].read,
        "completion_tokens": sum(each.tokens for each in drawn),
    }
    return {"choices": choices[::-1], "usage": usage}
