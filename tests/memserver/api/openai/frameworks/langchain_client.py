"""langchain-openai: chat, stream, bound tools, and both ways of structured output."""

import sys

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class Weather(BaseModel):
    city: str
    sunny: bool


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"Sunny in {city}."


url = sys.argv[1]
for by_responses in (False, True):
    model = ChatOpenAI(base_url=url, api_key="none", model="sam", use_responses_api=by_responses)
    assert model.invoke("say Hello.").text == "Hello."
    assert "".join(chunk.text for chunk in model.stream("say Hello.")) == "Hello."
    bound = model.bind_tools([get_weather])
    for streamed in (False, True):
        chat = [HumanMessage("call get_weather")]
        if streamed:
            first, *chunks = bound.stream(chat)
            answer = sum(chunks, first)
        else:
            answer = bound.invoke(chat)
        [call] = answer.tool_calls
        assert (call["name"], call["args"]) == ("get_weather", {"city": "Oslo"})
        chat += [answer, ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"])]
        assert bound.invoke(chat).text == "result: Sunny in Oslo."
    for method in ("json_schema", "function_calling"):
        found = model.with_structured_output(Weather, method=method).invoke("weather")
        assert found == Weather(city="Oslo", sunny=True), (method, found)
assert model.invoke("say Bye.").text == "Bye."
