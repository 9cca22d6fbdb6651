"""Simon Willison's llm."""

import asyncio
import json

import llm
from llm.default_plugins.openai_models import AsyncChat, Chat
from with_openai import ASK, Person, stopped


def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


def model(url, key, kind=Chat):
    made = kind("sam", model_name="sam", api_base=url, supports_tools=True, supports_schema=True)
    made.key = key
    return made


async def text(url, key):
    return await asyncio.to_thread(lambda: model(url, key).prompt("one", stream=False).text())


async def stream(url, key):
    return await asyncio.to_thread(lambda: list(model(url, key).prompt("two")))


async def tools(url, key):
    chain = model(url, key).chain(ASK, tools=[llm.Tool.function(get_weather)], stream=False)
    return await asyncio.to_thread(chain.text)


async def structured(url, key):
    prompt = model(url, key).prompt("Who am I?", schema=Person, stream=False)
    return json.loads(await asyncio.to_thread(prompt.text))


async def stop(url, key):
    return await stopped(anext(aiter(model(url, key, AsyncChat).prompt("Write for ever."))))
