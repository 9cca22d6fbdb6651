"""Embeddings, by the server's own embedder; and where clients of the oldest of OpenAI's APIs are sent."""

import base64
import struct
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from memserver.api.dependencies import ServicesDep, TenantDep
from memserver.api.json_body import Router
from memserver.api.openai.errors import RESPONSES, Refusal
from memserver.errors import InvalidInput

MOST_TEXTS = 2048
MOST_CHARACTERS = 500_000
"""Of all texts of a request."""

router = Router(tags=["OpenAI's API"], responses=RESPONSES)


class EmbeddingRequest(BaseModel):
    """Texts to embed; other fields are taken and left out."""

    model_config = ConfigDict(extra="allow")
    input: str | list[str] | list[int] | list[list[int]] = Field(examples=[["A text."]])
    model: str = Field(
        description="Any: the server has one embedder, and the answer names it.",
        examples=["embedder"],
    )
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int | None, Field(description="Of the server's embedder.")] = None


class Embedding(BaseModel):
    """The vector of one text, of unit length; as base64 it is its 32-bit floats, the lowest byte first."""

    object: Literal["embedding"] = "embedding"
    index: int = Field(examples=[0])
    embedding: list[float] | str = Field(examples=[[0.6, 0.8]])


class EmbeddingUsage(BaseModel):
    """Tokens as the embedder counts them."""

    prompt_tokens: int = Field(examples=[5])
    total_tokens: int = Field(examples=[5])


class EmbeddingList(BaseModel):
    """The vectors in the texts' order."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str = Field(examples=["all-MiniLM-L6-v2"])
    usage: EmbeddingUsage


@router.post("/embeddings")
async def create_embeddings(
    request: EmbeddingRequest,
    services: ServicesDep,
    tenant: TenantDep,  # noqa: ARG001 - a key is wanted
) -> EmbeddingList:
    """Embed texts as passages and messages are embedded."""
    texts = _texts(request)
    embedder = services.archival.embedder
    tokens = sum(await embedder.count_tokens(texts))
    vectors = await embedder.embed(texts)
    if request.dimensions not in (None, embedder.dimension):
        raise InvalidInput(
            f"dimensions: the embedder {embedder.model} has {embedder.dimension}.",
            hint="Leave dimensions out.",
        )
    data = [
        Embedding(
            index=n, embedding=_encoded(each) if request.encoding_format == "base64" else each
        )
        for n, each in enumerate(vectors)
    ]
    usage = EmbeddingUsage(prompt_tokens=tokens, total_tokens=tokens)
    return EmbeddingList(data=data, model=embedder.model, usage=usage)


@router.post("/completions", include_in_schema=False)
async def refuse_completions(tenant: TenantDep) -> None:  # noqa: ARG001
    """An agent converses; it doesn't continue a text."""
    message = "/v1/completions is not answered: an agent continues no text."
    hint = "Use /v1/chat/completions or /v1/responses."
    raise Refusal(404, {"code": "not_supported", "message": message, "hint": hint}, {})


def _texts(request: EmbeddingRequest) -> list[str]:
    texts = [request.input] if isinstance(request.input, str) else request.input
    if not texts or len(texts) > MOST_TEXTS:
        raise InvalidInput(f"input: 1 to {MOST_TEXTS} texts are wanted.")
    found = [each for each in texts if isinstance(each, str)]
    if len(found) < len(texts):
        raise InvalidInput(
            "input: texts are wanted, not tokens of another model.",
            hint="In langchain's OpenAIEmbeddings set check_embedding_ctx_length=False.",
        )
    if not all(each.strip() for each in found):
        raise InvalidInput("input: a text is empty.")
    if sum(map(len, found)) > MOST_CHARACTERS:
        raise InvalidInput(f"input: the texts may have {MOST_CHARACTERS:,} characters together.")
    return found


def _encoded(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
