"""openai-agents: a function tool and an output type, by chat completions and by responses, whole and streamed."""

import asyncio
import sys

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel


class Weather(BaseModel):
    city: str
    sunny: bool


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"Sunny in {city}."


async def main(url: str) -> None:
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=url, api_key="none")
    for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        model = kind("sam", client)
        agent = Agent(name="a", model=model, tools=[get_weather])
        assert (await Runner.run(agent, "say Hello.")).final_output == "Hello."
        first = await Runner.run(agent, "call get_weather")
        assert first.final_output == "result: Sunny in Oslo."
        more = [*first.to_input_list(), {"role": "user", "content": "say Bye."}]
        assert (await Runner.run(agent, more)).final_output == "Bye."
        streamed = Runner.run_streamed(agent, "call get_weather")
        kinds = [event.type async for event in streamed.stream_events()]
        assert streamed.final_output == "result: Sunny in Oslo."
        assert "raw_response_event" in kinds
        typed = Agent(name="t", model=model, output_type=Weather)
        found = await Runner.run(typed, "weather")
        assert found.final_output == Weather(city="Oslo", sunny=True)


asyncio.run(main(sys.argv[1]))
