"""Embeddings by OpenAI's own client, and what its oldest API is answered."""

from typing import Any

import openai
import pytest

from tests.support.scripted_agent import Scripted


def test_texts_are_embedded_by_the_servers_embedder(scripted: Scripted):
    create = scripted.sdk.embeddings.create
    packed = create(model="text-embedding-3-small", input=["A cello.", "A boat."])
    plain = create(model="any", input="A cello.", encoding_format="float")
    assert [each.index for each in packed.data] == [0, 1]
    assert packed.data[0].embedding == pytest.approx(plain.data[0].embedding, abs=1e-6)
    assert sum(x * x for x in plain.data[0].embedding) == pytest.approx(1, abs=1e-3)
    assert (packed.model, packed.usage.prompt_tokens > 0) == ("hashing", True)


@pytest.mark.parametrize(
    ("asked", "parameter"),
    [
        ({"input": [[1, 2]]}, "input"),
        ({"input": []}, "input"),
        ({"input": [" "]}, "input"),
        ({"input": ["x"] * 2049}, "input"),
        ({"input": ["x" * 250_001] * 2}, "input"),
        ({"dimensions": 7}, "dimensions"),
    ],
)
def test_what_can_not_be_embedded_is_refused(scripted: Scripted, asked: Any, parameter: str):
    with pytest.raises(openai.BadRequestError) as refused:
        scripted.sdk.embeddings.create(**{"model": "any", "input": "x", **asked})
    assert refused.value.param == parameter


def test_the_oldest_api_says_what_to_use_instead(scripted: Scripted):
    with pytest.raises(openai.NotFoundError, match="Use /v1/chat/completions") as refused:
        scripted.sdk.completions.create(model="any", prompt="Once")
    assert refused.value.code == "not_supported"
