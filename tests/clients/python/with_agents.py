"""OpenAI's Agents SDK."""

from agents import (
    Agent,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from with_openai import ASK, Person, made, stopped

set_tracing_disabled(True)


@function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


def agent(url, key, **more):
    return Agent(name="sam", model=OpenAIResponsesModel("sam", made(url, key)), **more)


async def text(url, key):
    return (await Runner.run(agent(url, key), "one")).final_output


async def stream(url, key):
    result = Runner.run_streamed(agent(url, key), "two")
    events = [
        each.data async for each in result.stream_events() if each.type == "raw_response_event"
    ]
    return [each.delta for each in events if each.type == "response.output_text.delta"]


async def tools(url, key):
    return (await Runner.run(agent(url, key, tools=[get_weather]), ASK)).final_output


async def structured(url, key):
    result = await Runner.run(agent(url, key, output_type=Person), "Who am I?")
    return result.final_output.model_dump()


async def stop(url, key):
    return await stopped(Runner.run(agent(url, key), "Write for ever."))
