"""Several chats of a front end with one agent, agents of users, and what a front end asks for itself."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from psycopg import AsyncCursor

from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Held, ScriptedModel, Step, say
from memserver.testing.scripted_rules import last_user_text
from tests.support.server import OneDatabase, Server, serving

BACKGROUND = ("agents_waiting", "calls_overdue", "renew_leases")
Messages = list[dict[str, Any]]


def echo(prompt: Sequence[PromptMessage], _: Sequence[ToolSpec]) -> Step:
    return say(f"re {last_user_text(prompt)}")


def wrote(prompt: Sequence[PromptMessage]) -> str:
    return f"wrote: {prompt[-1].text[:40]}"


@asynccontextmanager
async def front_end(
    database: OneDatabase, **settings: Any
) -> AsyncIterator[tuple[Server, openai.AsyncOpenAI]]:
    """A server with the agent sam, and OpenAI's client."""
    model = settings.pop("model", None) or ScriptedModel(echo, summary=wrote)
    async with serving(database, model, **settings) as server:
        if not server.rows("SELECT 1 FROM agents"):
            await server.create_agent(name="sam")
        yield (
            server,
            openai.AsyncOpenAI(
                base_url="http://server/v1", api_key="none", http_client=server.http, max_retries=0
            ),
        )


async def ask(sdk: openai.AsyncOpenAI, chat: Messages, text: str, **more: Any) -> dict[str, Any]:
    """Says something in a chat, as a front end does, which sends the chat whole; what memserver adds to the answer."""
    chat.append({"role": "user", "content": text})
    answer = await sdk.chat.completions.create(
        **{"model": "sam", "messages": list(chat), **more}  # type: ignore[arg-type]
    )
    chat.append({"role": "assistant", "content": answer.choices[0].message.content})
    extra: dict[str, Any] = answer.memserver  # type: ignore[attr-defined]
    return extra


def note(server: Server) -> str:
    """What the last prompt says of the chat, right before what the user said."""
    before = server.model.last_prompt[-2].text
    return before.removeprefix("[event] chat: ") if before.startswith("[event] chat") else ""


def chats_of(server: Server) -> list[tuple[str, str | None]]:
    found = server.rows("SELECT content, chat FROM messages WHERE role = 'user' ORDER BY position")
    return [(text, chat) for text, chat in found]


async def test_a_chat_that_is_sent_whole_continues_and_another_one_begins(database: OneDatabase):
    async with front_end(database) as (server, sdk):
        first: Messages = []
        await ask(sdk, first, "a1")
        await ask(sdk, first, "a2")
        assert note(server) == ""
        await ask(sdk, second := [], "b1")
        assert "begins another chat" in note(server)
        await ask(sdk, second, "b2")
        assert note(server) == ""
        (_, a), (_, a2), (_, b), (_, b2) = chats_of(server)
        assert a == a2 != b == b2


async def test_a_prompt_says_how_an_earlier_chat_ended_to_which_the_user_returns(
    database: OneDatabase,
):
    async with front_end(database) as (server, sdk):
        first: Messages = []
        await ask(sdk, first, "Which is the older tower?")
        await ask(sdk, [], "Something else")
        await ask(sdk, first, "And the other one?")
        assert "continues an earlier chat" in note(server)
        assert "user: Which is the older tower?\nyou: re Which is the older tower?" in note(server)
        assert [chat for _, chat in chats_of(server)][::2] == [chats_of(server)[0][1]] * 2
        view = await server.get("sam/context")
        assert "you: re Which is the older tower?" in view["parts"][-1]["text"]
        await server.http.delete("/v1/agents/sam/turns/1")
        view = await server.get("sam/context")
        assert "older tower" not in str(view)
        assert "continues an earlier chat.\\n" in str(view)


async def test_an_edited_question_and_one_that_is_asked_again_stay_in_their_chat(
    database: OneDatabase,
):
    async with front_end(database) as (server, sdk):
        chat: Messages = []
        await ask(sdk, chat, "a1")
        again = list(chat)
        await ask(sdk, chat, "a2")
        await ask(sdk, list(again), "a2")
        assert "another answer" in note(server)
        await ask(sdk, list(again), "a3")
        assert "went back in this chat" in note(server)
        assert len({chat for _, chat in chats_of(server)}) == 1


async def test_a_chats_first_message_asked_again_begins_no_other_chat(database: OneDatabase):
    async with front_end(database) as (server, sdk):
        for _ in range(2):
            await ask(sdk, [], "a1")
        assert len({chat for _, chat in chats_of(server)}) == 1


async def test_messages_that_are_sent_alone_are_not_announced_as_chats(database: OneDatabase):
    async with front_end(database) as (server, sdk):
        for text in ("one", "two", "three"):
            await ask(sdk, [], text)
            assert note(server) == ""


@pytest.mark.parametrize("header", ["X-Memserver-Chat", "X-OpenWebUI-Chat-Id"])
async def test_a_header_names_the_chat_whatever_is_sent(database: OneDatabase, header: str):
    async with front_end(database) as (server, sdk):
        for text, chat in (("one", "a"), ("two", "b"), ("three", "a"), ("four", "a")):
            await ask(sdk, [], text, extra_headers={header: chat})
        assert chats_of(server) == [("one", "a"), ("two", "b"), ("three", "a"), ("four", "a")]
        assert note(server) == ""
        messages = (await server.get("sam/messages", order="asc"))["items"]
        assert [each["chat"] for each in messages if each["role"] == "user"] == list("abaa")


async def test_a_response_continues_the_chat_of_the_one_before(database: OneDatabase):
    async with front_end(database) as (server, sdk):
        one = await sdk.responses.create(model="sam", input="a1")
        await sdk.responses.create(model="sam", input="b1")
        await sdk.responses.create(input="a2", previous_response_id=one.id)
        assert "another chat" in note(server)
        chats = [chat for _, chat in chats_of(server)]
        assert chats[0] == chats[2] != chats[1]


async def test_a_chat_that_continues_costs_two_statements_beside_its_turn(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
):
    sent: list[str] = []
    execute = AsyncCursor.execute

    async def logged(self: AsyncCursor[Any], query: Any, *args: Any, **kwargs: Any) -> Any:
        sent.append(str(query))
        return await execute(self, query, *args, **kwargs)

    async with front_end(database) as (_, sdk):
        chat: Messages = []
        await ask(sdk, chat, "a1")
        monkeypatch.setattr(AsyncCursor, "execute", logged)
        await ask(sdk, chat, "a2")
    turn = [query for query in sent if not any(name in query for name in BACKGROUND)]
    assert len([query for query in turn if "set_config('memserver.tenant'" not in query]) == 6, turn


async def test_each_user_has_an_agent_of_its_own_made_of_the_named_one(database: OneDatabase):
    async with front_end(database) as (server, sdk):
        rules = {"name": "rules", "text": "Be brief.", "limit": 100}
        await server.http.post("/v1/agents/sam/working-context", json=rules)
        await server.http.patch("/v1/agents/sam/working-context/rules", json={"read_only": True})
        ids = [
            (await ask(sdk, [], f"I am {user}", model="sam@user", user=user))["agent_id"]
            for user in ("ada", "bob@example.com", "ada")
        ]
        assert ids[0] == ids[2] != ids[1]
        assert (await ask(sdk, [], "Hi", model="sam@user", user="ada"))["unused"] == []
        assert (await server.get("sam@ada"))["id"] == ids[0]
        for section, is_shared in (("rules", True), ("human", False)):
            of_sam, of_ada = [
                await server.get(f"{name}/working-context/{section}") for name in ("sam", "sam@ada")
            ]
            assert (of_sam["id"] == of_ada["id"]) == is_shared
        said = [each["text"] for each in (await server.get(f"{ids[1]}/messages"))["items"]]
        assert "I am bob@example.com" in said
        assert "I am ada" not in said
        assert (await server.get("sam"))["message_count"] == 0
        assert [model.id async for model in sdk.models.list()] == ["sam"]
        assert (await sdk.models.retrieve("sam@user")).id == "sam@user"


async def test_users_of_an_agent_with_a_long_name_have_agents_of_their_own(database: OneDatabase):
    async with front_end(database) as (server, sdk):
        name = "s" * 200
        await server.http.patch("/v1/agents/sam", json={"name": name})
        ids = {
            (await ask(sdk, [], "hi", model=f"{name}@user", user=user))["agent_id"]
            for user in ("ada", "bob", "ada")
        }
        assert len(ids) == 2


async def test_users_agents_are_made_once_and_only_so_many(database: OneDatabase):
    async with front_end(database, agents_per_template=1) as (server, sdk):
        made = await asyncio.gather(
            *(ask(sdk, [], f"hi {n}", model="sam@user", safety_identifier="ada") for n in range(3))
        )
        assert len({each["agent_id"] for each in made}) == 1
        with pytest.raises(openai.ConflictError, match="for 1 users"):
            await ask(sdk, [], "hi", model="sam@user", user="bob")
        with pytest.raises(openai.BadRequestError, match="Send `user`") as error:
            await ask(sdk, [], "hi", model="sam@user")
        assert error.value.param == "user"
        await ask(sdk, [], "hi", user="bob")
        assert (await server.get("sam"))["message_count"] == 2


OWN = [
    "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.",
    "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history",
    "### Task:\nSuggest 3-5 relevant follow-up questions",
    "Provide a concise, 5-word-or-less title for the conversation, using title case.",
    "Please generate a four to five word title summarizing our conversation without any lead-in",
]


@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_front_end_asks_for_itself_is_answered_and_not_remembered(
    database: OneDatabase, stream: bool
):
    async with front_end(database) as (server, sdk):
        for text in OWN:
            messages: Any = [{"role": "user", "content": text}]
            if stream:
                chunks = await sdk.chat.completions.create(
                    model="sam", messages=messages, stream=True
                )
                said = "".join([each.choices[0].delta.content or "" async for each in chunks])
            else:
                answer = await sdk.chat.completions.create(model="sam", messages=messages)
                said = answer.choices[0].message.content or ""
                assert answer.memserver["turn"] is None  # type: ignore[attr-defined]
            assert said == f"wrote: {text[:40]}".strip()
        assert (await server.get("sam"))["message_count"] == 0
        assert server.model.seen == []


@pytest.mark.parametrize(
    "text",
    [
        "### Task:\nRespond to the user query using the provided context.\n<user_query>Hi",
        "Please write a title for my essay on chats.",
    ],
    ids=["a question about documents", "a title that a person wants"],
)
async def test_what_a_person_asks_is_remembered(database: OneDatabase, text: str):
    async with front_end(database) as (server, sdk):
        await ask(sdk, [], text)
        assert (await server.get("sam"))["message_count"] == 2


async def test_a_front_ends_own_requests_are_messages_where_that_is_set_or_said(
    database: OneDatabase,
):
    async with front_end(database, front_end_requests=False) as (server, sdk):
        assert (await ask(sdk, [], OWN[0]))["turn"] == 1
        sent = {"X-Memserver-Remember": "false"}
        assert (await ask(sdk, [], "Hi", extra_headers=sent))["turn"] is None
        assert (await ask(sdk, [], "Hi", model="sam@no-memory"))["turn"] is None
        assert (await sdk.models.retrieve("sam@no-memory")).id == "sam@no-memory"
        response = await sdk.responses.create(
            model="sam@no-memory", instructions="Be brief.", input="Hi"
        )
        assert response.output_text == "wrote: Hi"
        assert [each.text for each in server.model.writes[-1]] == ["Be brief.", "Hi"]
        assert (await server.get("sam"))["message_count"] == 2
    async with front_end(database) as (server, sdk):
        sent = {"X-Memserver-Remember": "true"}
        assert (await ask(sdk, [], OWN[0], extra_headers=sent))["turn"] == 2


async def test_a_front_ends_own_request_does_not_wait_for_the_agents_turn(database: OneDatabase):
    may_answer = asyncio.Event()
    held = Held(say("Hello"), may_answer)
    async with front_end(database, model=ScriptedModel([held])) as (_, sdk):
        chat = asyncio.create_task(ask(sdk, [], "Hi"))
        await held.reached.wait()
        assert (await ask(sdk, [], OWN[0]))["turn"] is None
        assert not chat.done()
        may_answer.set()
        assert (await chat)["turn"] == 1
