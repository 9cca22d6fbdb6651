"""An embedding endpoint with the rules that those of providers have, each switched on by a test."""

import base64
import struct
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from memserver.testing.hashing_embedder import HashingEmbedder

Vectors = Sequence[list[float]]
Form = Callable[[Vectors], dict[str, Any]]


def openai(vectors: Vectors) -> dict[str, Any]:
    """The answer in OpenAI's form."""
    data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return {"object": "list", "data": data, "model": "m"}


def base64_of(vector: Sequence[float]) -> str:
    """A vector as OpenAI's clients ask for it."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


class EmbeddingEndpoint:
    """Hashes words into vectors, and refuses what it should.

    Attributes:
        natural: length of the model's vectors.
        dimensions: what happens to a request for another length.
        most_texts: in a request.
        most_characters: in a request, all its texts together.
        longest: characters of one text.
        bad: what no text may contain.
        refused: fields that are refused wherever they come.
        required: fields that each request has to have.
        only_text: whether `input` has to be a text.
        refusal: status and body of a refusal for what is asked; None answers in words that name it.
        down: a status for each request, and words; 0 is none.
        form: of an answer.
        asked: the bodies of all requests.
    """

    def __init__(self, natural: int = 16) -> None:
        self.natural = natural
        self.dimensions: Literal["taken", "refused", "ignored"] = "taken"
        self.most_texts = 2048
        self.most_characters = 10**9
        self.longest = 10**9
        self.bad = "\0"
        self.refused: Collection[str] = ()
        self.required: Collection[str] = ()
        self.only_text = False
        self.refusal: tuple[int, dict[str, Any]] | None = None
        self.down = 0
        self.words = "Not now."
        self.form: Form = openai
        self.models: tuple[int, object] = (200, {"data": [{"id": "m"}]})
        self.asked: list[dict[str, Any]] = []
        self.app = Starlette(
            routes=[
                Route("/v1/embeddings", self._embed, methods=["POST"]),
                Route("/v1/models", self._models),
            ]
        )

    @property
    def sizes(self) -> list[int]:
        """Of the requests, in texts."""
        return [len(_texts(body)) for body in self.asked]

    async def _models(self, _: Request) -> Response:
        status, body = self.models
        return JSONResponse(body, status)

    async def _embed(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        if self.down:
            return JSONResponse({"error": {"message": self.words}}, self.down)
        if (reason := self._reason(body)) is not None:
            status, reported = self.refusal or (400, {"error": {"message": reason}})
            return JSONResponse(reported, status)
        length = self.natural
        if "dimensions" in body and self.dimensions == "taken":
            length = body["dimensions"]
        vectors = await HashingEmbedder(length).embed(_texts(body))
        return JSONResponse(self.form(vectors))

    def _reason(self, body: dict[str, Any]) -> str | None:
        """Why a request is refused, if it is."""
        texts = _texts(body)
        refused = [name for name in self.refused if name in body]
        missing = [name for name in self.required if name not in body]
        reasons = {
            f"Extra inputs are not permitted: {', '.join(refused)}": refused,
            f"'{', '.join(missing)}' parameter is required": missing,
            "Input should be a valid string": self.only_text and isinstance(body["input"], list),
            "This model does not support specifying dimensions.": "dimensions" in body
            and self.dimensions == "refused",
            f"batch size is invalid, it should not be larger than {self.most_texts}": len(texts)
            > self.most_texts,
            "Too many tokens in the request.": sum(map(len, texts)) > self.most_characters,
            f"Invalid 'input': maximum input length is {self.longest} tokens.": max(map(len, texts))
            > self.longest,
            "The input was flagged.": any(self.bad in text for text in texts),
            "Input cannot be an empty string.": not all(text.strip() for text in texts),
        }
        return next((words for words, holds in reasons.items() if holds), None)


def _texts(body: dict[str, Any]) -> list[str]:
    texts: str | list[str] = body["input"]
    return [texts] if isinstance(texts, str) else texts
