"""The judge that is a model behind an OpenAI-compatible endpoint.

Its verdict is read by fixed rules, and a reply that has none is a broken one: it is never taken for a yes or no.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from memserver.errors import ContextOverflow, ModelError, ModelTimeout, ModelUnavailable
from memserver.messages import JsonObject
from memserver.openai_http.client import EndpointClient
from memserver.prompts import Prompts
from memserver_evals.judging.base import Judge, Verdict
from memserver_evals.judging.prompts import judge_prompt, prompts_hash
from memserver_evals.task import Claim, Exchange

MOST_TOKENS = 512
_THOUGHT = re.compile(r".*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_SHOUTED = re.compile(r"\b(NOT[ _]CORRECT|INCORRECT|CORRECT|WRONG)\b")
_ALONE = re.compile(
    r"\W*(?:(?:final )?(?:verdict|label|answer|judge?ment)\W+)?(not correct|incorrect|correct|wrong)\W*",
    re.IGNORECASE,
)


def read_verdict(reply: str) -> bool | None:
    """The verdict in a judge's reply: True for CORRECT, False for WRONG, None where it is not clear.

    What a model thought before (`</think>`) doesn't count. A last line that is only a verdict decides.
    Else the capitals CORRECT and WRONG are looked for, and all that are there must say the same.
    """
    said = _THOUGHT.sub("", reply).strip()
    if not said:
        return None
    if alone := _ALONE.fullmatch(said.splitlines()[-1].strip()):
        return _meant(alone[1])
    verdicts = {_meant(word) for word in _SHOUTED.findall(said)}
    return verdicts.pop() if len(verdicts) == 1 else None


def _meant(word: str) -> bool:
    return word.lower() == "correct"


class EndpointJudge(Judge):
    """Asks a model, at temperature 0."""

    def __init__(
        self,
        client: EndpointClient,
        model: str,
        prompts: Prompts | None = None,
        *,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        """`parameters`: more fields of the request, or others instead of temperature and max_tokens."""
        self._client = client
        self._model = model
        self._prompts = prompts or Prompts()
        self._parameters = {"temperature": 0, "max_tokens": MOST_TOKENS} | dict(parameters or {})

    @property
    @override
    def name(self) -> str:
        return self._model

    @property
    def identity(self) -> str:
        """What decides its verdicts: model, parameters, and the words of its prompts."""
        parameters = json.dumps(self._parameters, sort_keys=True)
        return f"{self._model} {parameters} {prompts_hash(self._prompts)}"

    @override
    async def judge(self, claim: Claim) -> Verdict:
        prompt: JsonObject = {"role": "user", "content": judge_prompt(self._prompts, claim)}
        request = {"model": self._model, "messages": [prompt], **self._parameters}
        try:
            reply = await self._client.post("/chat/completions", json.dumps(request).encode())
        except (ModelUnavailable, ModelTimeout):
            raise
        except ContextOverflow as error:
            return Verdict(None, error.message)
        except ModelError as error:
            if error.code == ModelError.code:
                return Verdict(None, error.message)
            raise
        message, usage = _message(reply), reply.get("usage") or {}
        exchange = Exchange(
            (prompt,),
            message,
            tokens_in=int(usage.get("prompt_tokens") or 0),
            tokens_out=int(usage.get("completion_tokens") or 0),
            purpose="judge",
        )
        text = str(message.get("content") or "")
        return Verdict(read_verdict(text), text.strip(), exchange)


def _message(reply: JsonObject) -> JsonObject:
    choices = reply.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        message = choices[0].get("message")
        if isinstance(message, dict):
            return message
    return {}
