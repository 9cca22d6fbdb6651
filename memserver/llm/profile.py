"""How one model at one endpoint is spoken to: the one place that knows how OpenAI-compatible endpoints differ.

A profile is found by asking, changed by what refusals say, and overridable by the setting
MEMSERVER_LLM_PROFILE. Nothing else in memserver depends on which provider answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import override

from memserver.errors import SetupError

ToolCallMode = Literal["tools", "json_schema", "text"]
"""Native tool calling; an answer held to a JSON schema; or nothing but what the system message says."""
ToolChoice = Literal["named", "required", "auto", "unset"]
"""The strictest form of `tool_choice` that the endpoint takes: the function as an object, or a word."""
OutputLimit = Literal["max_tokens", "max_completion_tokens", "unset"]
"""The parameter that limits an answer's tokens."""
Roles = Literal["any", "alternating"]
"""alternating: user and assistant take turns, the user begins and ends, and no user message follows a tool's
result, as the chat templates of Mistral and Gemma demand."""
SystemRole = Literal["system", "user"]
"""user: the system message stands at the head of the first user message."""
ReturnedFields = Literal["sent", "left_out"]
"""Whether fields that the model's messages came with (reasoning_content, thought_signature, …) go back to it."""
MissingFields = Literal["left_out", "reasoning_content", "thought_signature"]
"""What stands in a call that another model made, where the endpoint refuses calls without such a field."""
AnswerRoot = Literal["any_of", "object"]
"""The root of a JSON answer's schema: one branch for each tool, or one object, as OpenAI's strict mode demands."""


@dataclass(frozen=True, slots=True)
class EndpointProfile:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    mode: ToolCallMode = "tools"
    tool_choice: ToolChoice = "named"
    parallel_tool_calls: bool = True
    """Whether the field `parallel_tool_calls: false` is taken."""
    strict_tools: bool = True
    """Whether a tool may have the field `strict`."""
    output_limit: OutputLimit = "max_tokens"
    reasoning_effort: str | None = None
    """Sent as it is; some models take tools with the effort "none" only."""
    seed: bool = True
    """Whether a `seed` is taken."""
    stream_options: bool = True
    """Whether `stream_options: {include_usage: true}` is taken."""
    roles: Roles = "any"
    system_role: SystemRole = "system"
    returned_fields: ReturnedFields = "sent"
    missing_fields: MissingFields = "left_out"
    calls_without_tools: bool = True
    """Whether messages may have calls in a request that offers no tools, such as that for a summary."""
    text_beside_calls: bool = True
    """Whether an assistant's message may have both a call and the text that stood beside it."""
    answer_root: AnswerRoot = "any_of"
    pictures: bool = True
    """Whether a user's message may have pictures."""


FIELDS = tuple(field.name for field in fields(EndpointProfile))
OF_MESSAGES = frozenset(
    {
        *("roles", "system_role", "returned_fields", "missing_fields", "calls_without_tools"),
        *("text_beside_calls", "pictures"),
    }
)
"""Fields about a prompt's messages: the probe's two messages show nothing of them."""
_SET_BY_BODY = {"max_tokens": "output_limit", "max_completion_tokens": "output_limit"}
"""Fields of a request's body, and the profile's that say how they are sent, where the names differ."""
_ADAPTER = TypeAdapter(EndpointProfile)


@dataclass(frozen=True, slots=True)
class ProfileChange:
    """One thing that an endpoint does not take as it was tried first; `words` say what showed it."""

    field: str
    before: object
    after: object
    words: str

    @override
    def __str__(self) -> str:
        return f"{self.field} is {_shown(self.after)}, not {_shown(self.before)}: {self.words}"


@dataclass(frozen=True, slots=True)
class ProfileReport:
    """A profile for people to read; while `mode_is_open`, the endpoint has not been asked."""

    profile: EndpointProfile
    mode_is_open: bool
    changes: tuple[ProfileChange, ...]

    @property
    def mode(self) -> str:
        return "auto" if self.mode_is_open else self.profile.mode

    @override
    def __str__(self) -> str:
        unusual = [f"{name} {_shown(value)}" for name, value in self.unusual().items()]
        return ", ".join([f"mode {self.mode}", *unusual])

    def unusual(self) -> dict[str, Any]:
        usual = EndpointProfile()
        return {
            name: getattr(self.profile, name)
            for name in FIELDS
            if name != "mode" and getattr(self.profile, name) != getattr(usual, name)
        }


def profile_of(given: Mapping[str, Any]) -> EndpointProfile:
    """The profile that the setting gives; what it doesn't name is as usual.

    Raises:
        SetupError: it names a field that there is not, or a value that the field can't have.
    """
    try:
        return _ADAPTER.validate_python(dict(given))
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False)
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "unexpected_keyword_argument":
            raise SetupError(
                f"MEMSERVER_LLM_PROFILE: there is no field {name}.",
                hint=f"Its fields: {', '.join(FIELDS)}.",
            ) from error
        raise SetupError(
            f"MEMSERVER_LLM_PROFILE: {name}: {first['msg']}.",
            hint="docs/endpoints.md has its fields and their values.",
        ) from error


def overridden(given: Mapping[str, Any], body: Mapping[str, Any]) -> frozenset[str]:
    """The fields that no refusal changes: those of the setting, and those that the body's setting decides."""
    by_body = {_SET_BY_BODY.get(name, name) for name in body}
    return frozenset(given) | (by_body & frozenset(FIELDS))


def _shown(value: object) -> str:
    if value is None or value is False:
        return "left out"
    return "sent" if value is True else str(value)
