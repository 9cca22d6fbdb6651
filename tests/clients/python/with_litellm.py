"""LiteLLM."""

import asyncio

import litellm
from with_openai import ASK, ASKED, WEATHER, Person, user


def ask(url, key, said, **more):
    messages = said if isinstance(said, list) else [user(said)]
    return litellm.acompletion(
        model="openai/sam", api_base=url, api_key=key, messages=messages, **more
    )


async def text(url, key):
    return (await ask(url, key, "one")).choices[0].message.content


async def stream(url, key):
    chunks = await ask(url, key, "two", stream=True)
    return [chunk.choices[0].delta.content async for chunk in chunks]


async def tools(url, key):
    more = {"tools": [{"type": "function", "function": WEATHER}]}
    message = (await ask(url, key, ASK, **more)).choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}
    last = await ask(url, key, [user(ASK), message.model_dump(), result], **more)
    return last.choices[0].message.content


async def structured(url, key):
    answer = await ask(url, key, "Who am I?", response_format=Person)
    return Person.model_validate_json(answer.choices[0].message.content).model_dump()


async def stop(url, key):
    chunks = await ask(url, key, "Write for ever.", stream=True)
    await asyncio.sleep(ASKED)
    await chunks.aclose()
    return "stopped"
