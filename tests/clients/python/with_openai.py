"""OpenAI's own client: chat completions."""

import asyncio

from openai import AsyncOpenAI
from pydantic import BaseModel

ASKED = 1
"""Seconds until the model has surely been asked."""
ASK = "What is the weather in Oslo?"
WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


class Person(BaseModel):
    name: str
    age: int


def made(url, key):
    return AsyncOpenAI(base_url=url, api_key=key)


def user(content):
    return {"role": "user", "content": content}


async def stopped(answer):
    """Ask, and give up as a task that is cancelled does."""
    asking = asyncio.ensure_future(answer)
    await asyncio.wait([asking], timeout=ASKED)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    return "stopped"


async def text(url, key):
    async with made(url, key) as client:
        answer = await client.chat.completions.create(model="sam", messages=[user("one")])
        return answer.choices[0].message.content


async def stream(url, key):
    async with made(url, key) as client:
        chunks = await client.chat.completions.create(
            model="sam", messages=[user("two")], stream=True
        )
        return [chunk.choices[0].delta.content async for chunk in chunks if chunk.choices]


async def tools(url, key):
    async with made(url, key) as client:
        messages = [user(ASK)]
        more = {"model": "sam", "tools": [{"type": "function", "function": WEATHER}]}
        first = await client.chat.completions.create(messages=messages, **more)
        message = first.choices[0].message
        messages += [
            message,
            {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"},
        ]
        last = await client.chat.completions.create(messages=messages, **more)
        return last.choices[0].message.content


async def structured(url, key):
    async with made(url, key) as client:
        answer = await client.chat.completions.parse(
            model="sam", messages=[user("Who am I?")], response_format=Person
        )
        return answer.choices[0].message.parsed.model_dump()


async def stop(url, key):
    async with made(url, key) as client:
        chunks = await client.chat.completions.create(
            model="sam", messages=[user("Write for ever.")], stream=True
        )
        await asyncio.sleep(ASKED)
        await chunks.close()
        return "stopped"
