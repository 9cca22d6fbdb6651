"""pydantic-ai: text, a stream, a tool, and an output type in each of its modes."""

import asyncio
import sys

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class Weather(BaseModel):
    city: str
    sunny: bool


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"Sunny in {city}."


async def main(url: str) -> None:
    provider = OpenAIProvider(base_url=url, api_key="none")
    for kind in (OpenAIChatModel, OpenAIResponsesModel):
        model = kind("sam", provider=provider)
        agent = Agent(model)
        assert (await agent.run("say Hello.")).output == "Hello."
        async with agent.run_stream("say Hello.") as run:
            assert await run.get_output() == "Hello."
        tooled = Agent(model, tools=[get_weather])
        first = await tooled.run("call get_weather")
        assert first.output == "result: Sunny in Oslo.", first.output
        for output in (ToolOutput(Weather), NativeOutput(Weather)):
            typed = Agent(model, output_type=output)
            found = await typed.run("weather", message_history=first.all_messages())
            assert found.output == Weather(city="Oslo", sunny=True)
            again = await typed.run("weather", message_history=found.all_messages())
            assert again.output == found.output
        assert (await agent.run("say Bye.")).output == "Bye."


asyncio.run(main(sys.argv[1]))
