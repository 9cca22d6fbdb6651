"""LangChain's langchain-openai."""

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from with_openai import ASK, WEATHER, Person, stopped


def model(url, key):
    return ChatOpenAI(model="sam", base_url=url, api_key=key)


async def text(url, key):
    return (await model(url, key).ainvoke("one")).content


async def stream(url, key):
    return [chunk.content async for chunk in model(url, key).astream("two")]


async def tools(url, key):
    bound = model(url, key).bind_tools([{"type": "function", "function": WEATHER}])
    message = await bound.ainvoke(ASK)
    result = ToolMessage("sunny", tool_call_id=message.tool_calls[0]["id"])
    return (await bound.ainvoke([HumanMessage(ASK), message, result])).content


async def structured(url, key):
    return (await model(url, key).with_structured_output(Person).ainvoke("Who am I?")).model_dump()


async def stop(url, key):
    return await stopped(anext(model(url, key).astream("Write for ever.")))
