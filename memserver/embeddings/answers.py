"""Reads vectors out of the answers of embedding endpoints.

OpenAI's form first; then what others send in its place: vectors in base64, without an index or in another order,
numbers as text, and the forms of Ollama, Cohere, Gemini and llama.cpp.
"""

import base64
import binascii
import re
from array import array
from collections.abc import Sequence
from sys import byteorder
from typing import Any, TypeGuard

from memserver.embeddings.base import Vector
from memserver.embeddings.refusals import RefusedTexts
from memserver.errors import EmbeddingError
from memserver.messages import JsonObject

_WRAPPERS = ("data", "output", "result", "embeddings", "embedding", "float", "int8", "values")
"""Under which of its keys an object has its vectors."""
_NUMBERS = frozenset({int, float})
_NUMBER = re.compile(r"\s*[-+]?(\d|\.\d)[\d.eE+-]*\s*")


def read_vectors(answer: JsonObject) -> list[Vector]:
    """The vectors of an answer, in the order of the texts, not yet scaled.

    Raises:
        EmbeddingError: it holds none.
    """
    found = _unwrap(answer)
    if isinstance(found, str) or (_is_list(found) and _is_number(found[0])):
        found = [found]
    if not _is_list(found):
        raise EmbeddingError(
            "The embedding endpoint did not answer as an OpenAI-compatible endpoint does.",
            hint="Check that MEMSERVER_EMBEDDING_BASE_URL ends in /v1.",
        )
    return [_vector(item) for item in _order(found)]


def _unwrap(value: object) -> object:
    while isinstance(value, dict):
        value = next((value[key] for key in _WRAPPERS if key in value), None)
    return value


def _order(items: Sequence[object]) -> list[object]:
    indexes: list[Any] = [item.get("index") if isinstance(item, dict) else None for item in items]
    if all(index == indexes[0] for index in indexes):
        return list(items)
    try:
        placed = {int(index): item for index, item in zip(indexes, items, strict=True)}
    except (TypeError, ValueError, OverflowError):
        placed = {}
    if len(placed) < len(items):
        raise EmbeddingError("The embedding endpoint does not say which vector is of which text.")
    return [placed[index] for index in sorted(placed)]


def _vector(item: object) -> Vector:
    found = _unwrap(item)
    while _is_list(found) and len(found) == 1 and not _is_number(found[0]):
        found = found[0]
    try:
        if isinstance(found, str):
            return _decode(found)
        if _is_list(found) and (
            _NUMBERS.issuperset(map(type, found)) or all(map(_is_number, found))
        ):
            return list(map(float, found))
    except (ValueError, OverflowError):
        pass
    raise RefusedTexts(
        "The embedding endpoint's answer holds no vector of numbers.",
        hint="The model may not be one for sentence embeddings (pooling is off).",
    )


def _decode(text: str) -> Vector:
    """A vector of 32-bit floats, little-endian, in base64: what OpenAI's clients ask for."""
    try:
        numbers = array("f", base64.b64decode(text, validate=True))
    except binascii.Error as error:
        raise ValueError(text[:20]) from error
    if byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and bool(value)


def _is_number(value: object) -> bool:
    return type(value) in _NUMBERS or (
        isinstance(value, str) and _NUMBER.fullmatch(value) is not None
    )
