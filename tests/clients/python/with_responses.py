"""OpenAI's own client: responses."""

import asyncio

from with_openai import ASK, ASKED, WEATHER, Person, made


async def text(url, key):
    async with made(url, key) as client:
        return (await client.responses.create(model="sam", input="one")).output_text


async def stream(url, key):
    async with (
        made(url, key) as client,
        client.responses.stream(model="sam", input="two") as events,
    ):
        return [each.delta async for each in events if each.type == "response.output_text.delta"]


async def tools(url, key):
    async with made(url, key) as client:
        more = {"model": "sam", "tools": [{"type": "function", **WEATHER}]}
        first = await client.responses.create(input=ASK, **more)
        call = next(each for each in first.output if each.type == "function_call")
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        last = await client.responses.create(input=[result], previous_response_id=first.id, **more)
        return last.output_text


async def structured(url, key):
    async with made(url, key) as client:
        answer = await client.responses.parse(model="sam", input="Who am I?", text_format=Person)
        return answer.output_parsed.model_dump()


async def stop(url, key):
    async with made(url, key) as client:
        events = await client.responses.create(model="sam", input="Write for ever.", stream=True)
        await asyncio.sleep(ASKED)
        await events.close()
        return "stopped"
