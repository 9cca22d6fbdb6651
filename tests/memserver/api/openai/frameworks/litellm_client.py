"""litellm: tools and a response_format, whole and streamed."""

import json
import sys

import litellm
from pydantic import BaseModel


class Weather(BaseModel):
    city: str
    sunny: bool


TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def ask(messages, **more):
    return litellm.completion(
        model="openai/sam", api_base=sys.argv[1], api_key="none", messages=messages, **more
    )


def said(text):
    return [{"role": "user", "content": text}]


assert ask(said("say Hello.")).choices[0].message.content == "Hello."
for stream in (False, True):
    chat = said("call get_weather")
    answer = ask(chat, tools=[TOOL], stream=stream)
    if stream:
        answer = litellm.stream_chunk_builder(list(answer), messages=chat)
    message = answer.choices[0].message
    [call] = message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls"
    assert json.loads(call.function.arguments) == {"city": "Oslo"}
    chat += [message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "Sunny."}]
    assert ask(chat, tools=[TOOL]).choices[0].message.content == "result: Sunny."
form = {"type": "json_schema", "json_schema": {"name": "w", "schema": Weather.model_json_schema()}}
found = ask(said("weather"), response_format=form).choices[0].message.content
assert Weather.model_validate_json(found) == Weather(city="Oslo", sunny=True)
vectors = litellm.embedding(
    model="openai/any", api_base=sys.argv[1], api_key="none", input=["one", "two"]
)
assert len(vectors.data) == 2
assert ask(said("say Bye.")).choices[0].message.content == "Bye."
