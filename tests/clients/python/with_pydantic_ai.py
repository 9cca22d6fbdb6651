"""Pydantic AI."""

from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from with_openai import ASK, Person, stopped


def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


def agent(url, key, **more):
    return Agent(OpenAIChatModel("sam", provider=OpenAIProvider(base_url=url, api_key=key)), **more)


async def text(url, key):
    return (await agent(url, key).run("one")).output


async def stream(url, key):
    async with agent(url, key).run_stream("two") as result:
        return [part async for part in result.stream_text(delta=True)]


async def tools(url, key):
    return (await agent(url, key, tools=[get_weather]).run(ASK)).output


async def structured(url, key):
    result = await agent(url, key, output_type=NativeOutput(Person)).run("Who am I?")
    return result.output.model_dump()


async def stop(url, key):
    return await stopped(agent(url, key).run("Write for ever."))
