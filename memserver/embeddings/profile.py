"""How embedding endpoints differ, and what a request to one of them looks like.

A profile begins with what OpenAI and vLLM take. Each change takes something away that the endpoint has refused, or
adds what it has asked for, so that there are few.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from memserver.messages import JsonObject


@dataclass(frozen=True, slots=True)
class EmbeddingProfile:
    """What an endpoint takes.

    Attributes:
        encoding_format: whether it is asked for numbers; without, some answer in base64, which is read as well.
        list_input: whether a request may have several texts.
        input_type: whether it has to know which text is a query (NVIDIA NIM).
        dimensions: the length of vectors that it is asked for; 0: it gives what its model has.
    """

    encoding_format: bool = True
    list_input: bool = True
    input_type: bool = False
    dimensions: int = 0

    def body(
        self, model: str, texts: Sequence[str], more: Mapping[str, Any], *, query: bool = False
    ) -> JsonObject:
        """A request's body; `more` are additions, of which null leaves a field out."""
        fields: JsonObject = {"model": model, "input": list(texts) if self.list_input else texts[0]}
        if self.encoding_format:
            fields["encoding_format"] = "float"
        if self.input_type:
            fields["input_type"] = "query" if query else "passage"
        if self.dimensions:
            fields["dimensions"] = self.dimensions
        kept = {**fields, **more}
        return {name: value for name, value in kept.items() if value is not None}

    def after(self, refusal: str) -> "EmbeddingProfile":
        """The profile after a refusal that names a field; this one where it names none."""
        if self.encoding_format and "encoding_format" in refusal:
            return replace(self, encoding_format=False)
        if _TYPE_WANTED.search(refusal):
            return replace(self, input_type=True)
        return self

    def simpler(self) -> Iterator["EmbeddingProfile"]:
        """Profiles for an endpoint that refuses whatever it is asked, without words that say why."""
        if self.encoding_format:
            yield replace(self, encoding_format=False)
        if self.list_input:
            yield replace(self, list_input=False)
            yield replace(self, list_input=False, encoding_format=False)

    def describe(self) -> str:
        said = {
            "asked for by `dimensions`": bool(self.dimensions),
            "without `encoding_format`": not self.encoding_format,
            "with `input_type`": self.input_type,
            "one text a request": not self.list_input,
        }
        return ", ".join(words for words, holds in said.items() if holds)


_TYPE_WANTED = re.compile(
    r"input_type.{0,80}(required|missing|must|mandatory)|(requires?|missing).{0,40}input_type",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Additions:
    """What settings add to requests, for models that want passages and queries distinguished.

    Attributes:
        body: of every request; null leaves a field out.
        query_body: of a query's request, after those of every one.
        prefix: before each passage.
        query_prefix: before a query.
    """

    body: Mapping[str, Any] = field(default_factory=dict)
    query_body: Mapping[str, Any] = field(default_factory=dict)
    prefix: str = ""
    query_prefix: str = ""

    @property
    def queries_differ(self) -> bool:
        return bool(self.query_body) or self.prefix != self.query_prefix

    def of(self, *, query: bool) -> Mapping[str, Any]:
        return {**self.body, **self.query_body} if query else self.body
