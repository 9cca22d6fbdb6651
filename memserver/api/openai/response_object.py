"""What a response is, as OpenAI's clients read it."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from memserver.api.openai.chat import Extra
from memserver.api.openai.client_tools import arguments_of
from memserver.messages import FunctionCall, TokenUsage

Status = Literal["completed", "failed", "in_progress", "incomplete", "cancelled"]


class OutputText(BaseModel):
    """A part of a message."""

    type: Literal["output_text"] = "output_text"
    text: str = Field(examples=["Hello Ada!"])
    annotations: list[Any] = []
    logprobs: list[Any] = []


class OutputMessage(BaseModel):
    """What the agent said."""

    type: Literal["message"] = "message"
    id: str = Field(examples=["msg_0198f1c27a3b7c4d8e5f0123456789ab_1"])
    status: Literal["completed", "in_progress"]
    role: Literal["assistant"] = "assistant"
    content: list[OutputText]


class OutputCall(BaseModel):
    """A call that the client has to run. Its result comes as a function_call_output with this call_id."""

    type: Literal["function_call"] = "function_call"
    id: str = Field(examples=["fc_k3Xq9TbZ1"])
    call_id: str = Field(examples=["k3Xq9TbZ1"])
    name: str = Field(examples=["get_weather"])
    arguments: str = Field(examples=['{"city": "Oslo"}'])
    status: Literal["completed", "in_progress"] = "completed"

    @classmethod
    def of(cls, call: FunctionCall) -> "OutputCall":
        arguments = arguments_of(call)
        return cls(id=f"fc_{call.id}", call_id=call.id, name=call.name, arguments=arguments)


class CachedTokens(BaseModel):
    """Of the input's tokens."""

    cached_tokens: int = Field(examples=[1408])
    cache_write_tokens: int = 0


class ReasoningTokens(BaseModel):
    """Of the output's tokens; endpoints don't count them apart."""

    reasoning_tokens: int = 0


class ResponseUsage(BaseModel):
    """Tokens of all the turn's steps, as the model's endpoint counted them."""

    input_tokens: int = Field(examples=[1520])
    input_tokens_details: CachedTokens
    output_tokens: int = Field(examples=[41])
    output_tokens_details: ReasoningTokens = ReasoningTokens()
    total_tokens: int = Field(examples=[1561])

    @classmethod
    def of(cls, usage: TokenUsage) -> "ResponseUsage":
        return cls(
            input_tokens=usage.prompt_tokens,
            input_tokens_details=CachedTokens(cached_tokens=usage.cached_tokens),
            output_tokens=usage.completion_tokens,
            total_tokens=usage.prompt_tokens + usage.completion_tokens,
        )


class ResponseError(BaseModel):
    """Why the turn failed."""

    code: str = Field(examples=["server_error"])
    message: str = Field(examples=["The model gave no answer in time."])


class IncompleteDetails(BaseModel):
    """Why the answer is cut."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponseObject(BaseModel):
    """A response."""

    id: str = Field(examples=["resp_0198f1c27a3b7c4d8e5f0123456789ab_1"])
    object: Literal["response"] = "response"
    created_at: int = Field(examples=[1770465600])
    status: Status
    model: str = Field(examples=["sam"])
    output: list[OutputMessage | OutputCall]
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: None = None
    metadata: dict[str, str] = {}
    parallel_tool_calls: Literal[False] = False
    previous_response_id: str | None = None
    store: Literal[True] = True
    text: dict[str, Any] = {"format": {"type": "text"}}
    tool_choice: Any = "none"
    tools: list[Any] = []
    usage: ResponseUsage | None = None
    memserver: Extra
