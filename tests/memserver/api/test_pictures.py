"""Pictures that a user shows: what the model is sent, what is kept of them, and what is refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from memserver.messages import Picture
from memserver.testing.scripted import Call, ScriptedModel, say
from memserver.testing.scripted_rules import echo
from memserver.tools.function import MARK, ToolPicture, tool
from tests.support.agent_files import opened
from tests.support.picture_files import data_url, gif, jpeg, message, png, webp
from tests.support.server import OneDatabase, Server, serving

CAT, DOG = png(20, 30), jpeg(40, 10)


@asynccontextmanager
async def seeing(
    database: OneDatabase, **settings: Any
) -> AsyncIterator[tuple[Server, openai.AsyncOpenAI]]:
    """A server with the agent sam, whose model takes pictures, and OpenAI's client."""
    async with serving(database, ScriptedModel(echo), **settings) as server:
        await server.create_agent(name="sam")
        sdk = openai.AsyncOpenAI(
            base_url="http://server/v1", api_key="none", http_client=server.http, max_retries=0
        )
        yield server, sdk


async def chat(sdk: openai.AsyncOpenAI, *messages: Any) -> str:
    answer = await sdk.chat.completions.create(model="sam", messages=list(messages))
    return answer.choices[0].message.content or ""


def seen(server: Server) -> list[list[Picture]]:
    """The pictures of each of the user's messages in the last prompt."""
    return [list(each.pictures) for each in server.model.last_prompt if each.role == "user"]


def kept(server: Server) -> int:
    return int(server.rows("SELECT count(*) FROM pictures")[0][0])


async def test_pictures_reach_the_model_and_stay_in_view_by_every_api(database: OneDatabase):
    async with seeing(database) as (server, sdk):
        first = message("What is this?", CAT)
        answer = await chat(sdk, first)
        assert [picture.data for picture in seen(server)[-1]] == [CAT]
        said = {"role": "assistant", "content": answer}
        await chat(sdk, first, said, {"role": "user", "content": "Really?"})
        assert [len(each) for each in seen(server)] == [1, 0]
        parts: Any = [
            {"type": "input_text", "text": "And this?"},
            {"type": "input_image", "image_url": data_url(DOG, "image/jpeg"), "detail": "auto"},
        ]
        await sdk.responses.create(model="sam", input=[{"role": "user", "content": parts}])
        assert [picture.media_type for picture in seen(server)[-1]] == ["image/jpeg"]
        picture = {"url": data_url(gif()), "name": "tower.gif"}
        body = {"text": "A tower.", "pictures": [picture]}
        await server.http.post("/v1/agents/sam/messages", json=body)
        assert [(each.width, each.height) for each in seen(server)[-1]] == [(2, 3)]
        history = (await server.get("sam/messages"))["items"]
        texts = [each["text"] for each in history if each["role"] == "user"]
        assert texts[0] == "A tower.\n[picture: tower.gif]"
        assert "What is this?\n[picture]" in texts
        assert history[1]["pictures"][0]["name"] == "tower.gif"
        assert kept(server) == 3
        found = await server.get("sam/recall/search", query="tower.gif")
        assert "[picture: tower.gif]" in str(found)


async def test_a_picture_is_kept_once_and_erased_with_the_last_agent_that_saw_it(
    database: OneDatabase,
):
    async with seeing(database) as (server, sdk):
        for text in ("one", "two"):
            await chat(sdk, message(text, CAT))
        other = await server.create_agent(name="other")
        body = {"text": "Look", "pictures": [{"url": data_url(CAT)}, {"url": data_url(DOG)}]}
        await server.http.post(f"/v1/agents/{other}/messages", json=body)
        assert kept(server) == 2
        assert (await server.http.delete(f"/v1/agents/{other}/turns/1")).status_code == 200
        assert kept(server) == 1
        await server.http.post("/v1/agents/sam/fork", json={"name": "fork"})
        for agent, left in (("sam", 1), ("fork", 0)):
            await server.http.delete(f"/v1/agents/{agent}")
            assert kept(server) == left


async def test_tenants_do_not_share_a_picture(database: OneDatabase):
    async with seeing(database) as (server, _):
        await server.operate()
        body = {"text": "Look", "pictures": [{"url": data_url(CAT)}]}
        for tenant in ("north", "south"):
            key = await server.create_tenant(tenant)
            await server.http.post("/v1/agents", json={"name": "ada"}, headers=key)
            said = await server.http.post("/v1/agents/ada/messages", json=body, headers=key)
            assert said.status_code == 200, said.text
        assert kept(server) == 2
        await server.http.delete("/v1/agents/ada", headers=key)
        assert server.rows("SELECT tenant FROM pictures") == [("north",)]


async def test_pictures_move_with_the_agent(database: OneDatabase):
    async with seeing(database) as (server, sdk):
        await chat(sdk, message("What is this?", CAT, DOG, CAT))
        file = (await server.http.get("/v1/agents/sam/export")).content
        assert len(opened(file)["pictures.jsonl"]) == 2
        await server.http.delete("/v1/agents/sam")
        made = await server.http.post("/v1/agents/import", content=file)
        assert made.status_code == 201, made.text
        assert kept(server) == 2
        await chat(sdk, {"role": "user", "content": "Which?"})
        assert [each.data for each in seen(server)[0]] == [CAT, DOG, CAT]


async def test_a_picture_without_room_in_the_window_is_left_out_and_the_model_is_told(
    database: OneDatabase,
):
    async with seeing(database) as (server, sdk):
        await server.http.patch("/v1/agents/sam", json={"options": {"context_window": 2048}})
        await chat(sdk, message("Look", png(5000, 5000)))
        assert seen(server)[-1] == []
        assert "no room in your window" in server.model.last_prompt[-1].text


@pytest.mark.parametrize("data", [png(7, 8), gif(7, 8), jpeg(7, 8), webp(7, 8)])
async def test_every_kind_is_known_by_its_bytes_whatever_is_said_of_it(
    database: OneDatabase, data: bytes
):
    async with seeing(database) as (server, _):
        body = {"text": "Look", "pictures": [{"url": data_url(data, "text/html")}]}
        said = await server.http.post("/v1/agents/sam/messages", json=body)
        assert said.status_code == 200, said.text
        assert [(each.width, each.height) for each in seen(server)[-1]] == [(7, 8)]


REFUSED = {
    "SVG": (data_url(b'<svg xmlns="http://www.w3.org/2000/svg"/>', "image/svg+xml"), "SVG"),
    "no picture": (data_url(b"hello"), "no picture"),
    "too large": (data_url(png(more=bytes(2000))), "larger than 1,000 bytes"),
    "too many pixels": (data_url(png(2000, 2000)), "2000 x 2000 pixels"),
    "damaged": (data_url(png(0, 0)), "damaged"),
    "no base64": ("data:image/png;base64,!!!!", "base64"),
    "an address": ("https://example.com/cat.png", "fetches nothing"),
    "a file of the server": ("file:///etc/passwd", "fetches nothing"),
}


async def test_what_is_refused_says_why_and_leaves_nothing(database: OneDatabase):
    limits = {"picture_max_bytes": 1000, "picture_max_pixels": 1_000_000}
    async with seeing(database, **limits) as (server, sdk):
        for url, words in REFUSED.values():
            part = {"type": "image_url", "image_url": {"url": url}}
            with pytest.raises(openai.BadRequestError, match=words) as refused:
                await chat(sdk, {"role": "user", "content": [part]})
            assert refused.value.code == "picture_refused"
            assert refused.value.param == "messages[0].content[0]"
        many = {"text": "Look", "pictures": [{"url": data_url(CAT)}] * 17}
        answer = await server.http.post("/v1/agents/sam/messages", json=many)
        assert answer.json()["error"]["code"] == "picture_refused"
        assert (await server.get("sam"))["message_count"] == kept(server) == 0
        assert await chat(sdk, message("Look", CAT)) == "echo: Look\n[picture]"


async def test_two_agents_are_shown_the_same_picture_while_a_third_is_deleted(
    database: OneDatabase,
):
    async with seeing(database) as (server, _):
        body = {"text": "Look", "pictures": [{"url": data_url(CAT)}]}

        async def live(name: str) -> None:
            await server.create_agent(name=name)
            said = await server.http.post(f"/v1/agents/{name}/messages", json=body)
            assert said.status_code == 200, said.text
            if name != "last":
                deleted = await server.http.delete(f"/v1/agents/{name}")
                assert deleted.status_code == 204, deleted.text

        await asyncio.gather(*(live(name) for name in ("a", "b", "c", "last")))
        assert kept(server) == 1
        await server.http.delete("/v1/agents/last")
        assert kept(server) == 0


class Blind(ScriptedModel):
    """A model that is known to take no pictures."""

    takes_pictures = False


async def test_pictures_for_a_model_that_takes_none_are_refused(database: OneDatabase):
    async with serving(database, Blind(echo)) as server:
        await server.create_agent(name="sam")
        body = {"text": "Look", "pictures": [{"url": data_url(CAT)}]}
        answer = await server.http.post("/v1/agents/sam/messages", json=body)
        assert answer.status_code == 422
        assert (
            answer.json()["error"]["message"] == "pictures[0]: the agent's model takes no pictures."
        )
        assert (await server.get("sam"))["message_count"] == kept(server) == 0


@tool(attached=True)
def photograph(what: str) -> list[object]:
    """Take a photograph.

    Args:
        what: of what.
    """
    return [f"Here is {what}.", ToolPicture(CAT, "cat.png"), ToolPicture(b"<svg/>")]


async def test_a_tool_shows_pictures_which_stay_in_view_and_move_with_the_agent(
    database: OneDatabase,
):
    call = Call("photograph", {"what": "Tom", "request_heartbeat": True})
    model = ScriptedModel([call, say("A cat."), say("As I said."), say("A cat, it was.")])
    async with serving(database, model, [getattr(photograph, MARK).tool]) as server:
        agent = await server.create_agent(name="sam")
        answer = await server.say(agent, "Show me Tom.")
        assert [each.data for each in seen(server)[-1]] == [CAT]
        [result, _] = [each["tool_call"]["result"] for each in answer["messages"]]
        assert result.startswith("Here is Tom.\n[picture: cat.png]\n[picture]\n")
        assert "[picture 2 was not taken: SVG" in result
        await server.say(agent, "What was it?")
        assert [each.data for shown in seen(server) for each in shown] == [CAT]
        file = (await server.http.get(f"/v1/agents/{agent}/export")).content
        await server.http.delete(f"/v1/agents/{agent}")
        assert kept(server) == 0
        made = (await server.http.post("/v1/agents/import", content=file)).json()
        await server.say(made["agent"]["id"], "And now?")
        assert [each.data for shown in seen(server) for each in shown] == [CAT]


async def test_the_newest_pictures_stay_in_view_and_older_ones_leave_with_their_messages(
    database: OneDatabase,
):
    async with seeing(database) as (server, _):
        await server.http.patch("/v1/agents/sam", json={"options": {"context_window": 6000}})
        for number in range(8):
            picture = {"url": data_url(png(800, 700 + number))}
            body = {"text": f"This is number {number}.", "pictures": [picture]}
            said = await server.http.post("/v1/agents/sam/messages", json=body)
            assert said.status_code == 200, said.text
        heights = [each.height for shown in seen(server) for each in shown]
        assert 0 < len(heights) < 8
        assert heights == list(range(708 - len(heights), 708))
        view = await server.get("sam/context")
        assert view["used"] <= view["window"]
