"""The bodies of chat completions, as a profile wants them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memserver.llm.modes import PROBE, PROBE_PROMPT
from memserver.llm.profile import EndpointProfile
from memserver.llm.tool_schema import (
    native_tools_json,
    object_response_format_json,
    plain_tools_json,
    response_format_json,
)
from memserver.llm.wire import json_messages, native_messages
from memserver.messages import JsonObject, Prompt, ToolSpecs
from memserver.openai_http.streams import json_bytes


@dataclass(frozen=True, slots=True)
class JsonAnswers:
    """How the mode json_schema asks.

    Attributes:
        schema: more for the root of the answer's schema, such as vLLM's x-guidance.
        list_tools: the system message lists the tools; the schema holds the model to them anyway.
    """

    schema: Mapping[str, Any] = field(default_factory=dict)
    list_tools: bool = True


@dataclass(frozen=True, slots=True)
class Draft:
    """What is asked, before the fields of every request: `prepared` is JSON text, cached with the tools."""

    messages: list[JsonObject]
    fields: Mapping[str, Any] = field(default_factory=dict)
    prepared: str = ""


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request as it is sent: all fields but those in `prepared` and the messages."""

    draft: Draft
    fields: JsonObject
    body: bytes

    @property
    def offers_tools(self) -> bool:
        return self.draft.prepared.startswith('"tools"')

    @property
    def has_schema(self) -> bool:
        return self.draft.prepared.startswith('"response_format"')


@dataclass(frozen=True, slots=True)
class Requests:
    """Makes the requests of one model; `body` is as in ModelOptions."""

    body: Mapping[str, Any]
    answers: JsonAnswers
    seed: int | None

    def listed(self, profile: EndpointProfile, tools: ToolSpecs) -> ToolSpecs:
        in_schema = profile.mode == "json_schema" and not self.answers.list_tools
        return () if profile.mode == "tools" or in_schema else tools

    def call(self, model: str, profile: EndpointProfile, prompt: Prompt, tools: ToolSpecs) -> Draft:
        if profile.mode == "tools":
            messages = native_messages(prompt, profile, _fields_of(model, profile))
            written = (native_tools_json if profile.strict_tools else plain_tools_json)(tools)
            return Draft(messages, _tool_fields(profile, tools), f'"tools":{written}')
        messages = json_messages(prompt, self.listed(profile, tools), profile)
        return Draft(messages, prepared=self._schema(profile, tools))

    def probe(self, model: str, profile: EndpointProfile) -> Draft:
        """The probe's question; where a schema holds the answer, nothing else says its form."""
        if profile.mode != "tools":
            messages = json_messages(PROBE_PROMPT, profile=profile)
            return Draft(messages, prepared=self._schema(profile, [PROBE]))
        draft = self.call(model, profile, PROBE_PROMPT, [PROBE])
        if profile.tool_choice != "named":
            return draft
        return Draft(draft.messages, {**draft.fields, "tool_choice": "required"}, draft.prepared)

    def text(self, model: str, profile: EndpointProfile, prompt: Prompt) -> Draft:
        """For plain text; only the calls in the prompt look different in each mode."""
        native = profile.mode == "tools" and profile.calls_without_tools
        if native and any(message.call is not None for message in prompt):
            return Draft(native_messages(prompt, profile, _fields_of(model, profile)))
        return Draft(json_messages(prompt, profile=profile))

    def finish(
        self, draft: Draft, model: str, profile: EndpointProfile, max_tokens: int, *, streamed: bool
    ) -> PreparedRequest:
        fields: JsonObject = {"model": model, **draft.fields}
        if profile.output_limit != "unset":
            fields[profile.output_limit] = max_tokens
        if profile.reasoning_effort is not None:
            fields["reasoning_effort"] = profile.reasoning_effort
        if streamed:
            fields["stream"] = True
            if profile.stream_options:
                fields["stream_options"] = {"include_usage": True}
        messages = json_bytes(draft.messages)
        if self.seed is not None and profile.seed:
            fields["seed"] = _seed_of(self.seed, messages)
        if self.body:
            fields |= self.body
            fields = {name: value for name, value in fields.items() if value is not None}
        more = f",{draft.prepared}}}" if draft.prepared else "}"
        body = b"".join((json_bytes(fields)[:-1], b',"messages":', messages, more.encode()))
        return PreparedRequest(draft, fields, body)

    def _schema(self, profile: EndpointProfile, tools: ToolSpecs) -> str:
        if profile.mode == "text":
            return ""
        form = response_format_json
        if profile.answer_root == "object":
            form = object_response_format_json
        return f'"response_format":{form(tools, self.answers.schema)}'


def _fields_of(model: str, profile: EndpointProfile) -> str | None:
    return model if profile.returned_fields == "sent" else None


def _tool_fields(profile: EndpointProfile, tools: ToolSpecs) -> JsonObject:
    fields: JsonObject = {}
    if profile.tool_choice != "unset":
        fields["tool_choice"] = _choice(profile, tools)
    if profile.parallel_tool_calls:
        fields["parallel_tool_calls"] = False
    return fields


def _choice(profile: EndpointProfile, tools: ToolSpecs) -> object:
    """One tool is named, where that is taken; of several, one must be called."""
    if profile.tool_choice != "named":
        return profile.tool_choice
    if len(tools) > 1:
        return "required"
    return {"type": "function", "function": {"name": tools[0].name}}


def _seed_of(seed: int, messages: bytes) -> int:
    """31 bits: the same for the same prompt, and for another one as good as drawn by chance."""
    digest = hashlib.sha256(b"%d " % seed + messages).digest()
    return int.from_bytes(digest[:4]) >> 1
