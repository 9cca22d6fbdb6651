"""A client that hangs up before the answer: its turn continues, unless the server is set to cancel it."""

import asyncio
from typing import Any

import httpx2
import openai
import pytest

from memserver.client import AsyncClient
from memserver.client.events import TurnEnded
from memserver.testing.scripted import Held, ScriptedModel, Step, say
from tests.support.client import served
from tests.support.server import OneDatabase

HELLO = {"messages": [{"role": "user", "content": "Hi"}], "input": "Hi", "text": "Hi"}


class FirstHeld:
    """Keeps its first answer until it is let go; `asked` is set when the model is asked for it, from its thread."""

    def __init__(self) -> None:
        self._here = asyncio.get_running_loop()
        self.asked = asyncio.Event()
        self._first = True

    def __call__(self, *_: Any) -> Step:
        if not self._first:
            return say("Here.")
        self._first = False
        self._there, self._held = asyncio.get_running_loop(), asyncio.Event()
        self._here.call_soon_threadsafe(self.asked.set)
        return Held(say("Late."), self._held)

    def let_go(self) -> None:
        self._there.call_soon_threadsafe(self._held.set)


PATHS = {
    "text": "/agents/{}/messages",
    "messages": "/chat/completions",
    "input": "/responses",
}


@pytest.mark.parametrize(
    ("field", "stream", "how"),
    [
        ("text", True, "cancels"),
        ("messages", False, "cancels"),
        ("input", False, "cancels"),
        ("text", False, "has a key"),
        ("messages", True, "off"),
    ],
)
async def test_a_turn_whose_client_hangs_up_is_cancelled_where_that_is_set(
    database: OneDatabase, field: str, stream: bool, how: str
) -> None:
    model = FirstHeld()
    settings = {"cancel_on_hang_up": how != "off"}
    with served(database, ScriptedModel(model), **settings) as server:
        async with httpx2.AsyncClient(base_url=f"{server.url}/v1", timeout=60) as http:
            agent = (await http.post("/agents", json={})).json()["id"]
            body = {field: HELLO[field], "stream": stream, "model": agent}
            if field == "text":
                del body["model"]
            headers = {"Idempotency-Key": "k"} if how == "has a key" else {}
            request = http.post(PATHS[field].format(agent), json=body, headers=headers)
            asking = asyncio.create_task(request)
            await model.asked.wait()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            if how != "cancels":
                model.let_go()
            async with http.stream("GET", f"/agents/{agent}/turns/1/events") as events:
                heard = (await events.aread()).decode()
            said = await http.post(f"/agents/{agent}/messages", json={"text": "And?"})
    stop = "cancelled" if how == "cancels" else "message_sent"
    assert f'"stop_reason":"{stop}"' in heard.replace(": ", ":")
    assert said.json()["text"] == "Here."


async def test_a_request_that_openais_client_sends_again_is_answered_though_the_first_was_cancelled(
    database: OneDatabase,
) -> None:
    model = FirstHeld()
    with served(database, ScriptedModel(model), cancel_on_hang_up=True) as server:
        async with httpx2.AsyncClient(base_url=f"{server.url}/v1", timeout=60) as http:
            agent = (await http.post("/agents", json={})).json()["id"]
            body = {"model": agent, "messages": HELLO["messages"]}
            asking = asyncio.create_task(http.post("/chat/completions", json=body))
            await model.asked.wait()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            async with http.stream("GET", f"/agents/{agent}/turns/1/events") as events:
                await events.aread()
            again = await http.post(
                "/chat/completions", json=body, headers={"x-stainless-retry-count": "1"}
            )
    assert again.json()["choices"][0]["message"]["content"] == "Here."


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_openais_client_that_closes_its_stream_stops_the_turn(
    database: OneDatabase, api: str
) -> None:
    model = FirstHeld()
    settings = {"cancel_on_hang_up": True, "stream_ping_seconds": 0.02}
    with served(database, ScriptedModel(model), **settings) as server:
        sdk = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none")
        async with sdk, AsyncClient(server.url) as client:
            agent = await client.agents.create("sam")
            if api == "chat":
                stream: Any = await sdk.chat.completions.create(
                    model="sam", messages=[{"role": "user", "content": "Hi"}], stream=True
                )
            else:
                stream = await sdk.responses.create(model="sam", input="Hi", stream=True)
            await anext(aiter(stream))
            await model.asked.wait()
            await stream.close()
            *_, ended = [event async for event in client.turns.events(agent.id, 1)]
            said = await client.messages.send(agent.id, "And?")
    assert isinstance(ended, TurnEnded)
    assert (ended.stop_reason, said.text) == ("cancelled", "Here.")
