"""A client that sends its whole history with each request doesn't make the agent read it twice."""

from collections.abc import Sequence
from typing import Any

import pytest

from memserver.errors import ModelUnavailable
from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import ScriptedModel, Step, say
from memserver.testing.scripted_rules import last_user_text
from tests.support.server import OneDatabase, Server, serving

Chat = list[tuple[str, str]]


def echo(prompt: Sequence[PromptMessage], _: Sequence[ToolSpec]) -> Step:
    """Answers what was said last, and fails where it is `fail`."""
    text = last_user_text(prompt)
    return ModelUnavailable("down") if text == "fail" else say(f"re {text}")


async def complete(server: Server, *messages: tuple[str, Any], **more: Any) -> str:
    headers = more.pop("headers", {})
    answer = await server.http.post(
        "/v1/chat/completions",
        json={
            "model": "sam",
            "messages": [{"role": role, "content": content} for role, content in messages],
            **more,
        },
        headers=headers,
    )
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


async def history(server: Server, agent: str) -> Chat:
    found = await server.get(f"{agent}/messages", order="asc", limit=100)
    return [(each["role"], each["text"]) for each in found["items"] if each["text"]]


async def test_a_conversation_that_is_sent_whole_each_time_is_read_once(database: OneDatabase):
    async with serving(database, ScriptedModel(echo)) as server:
        agent = await server.create_agent(name="sam")
        chat: Chat = [("system", "You are a pirate.")]
        for text in ("one", "two", "three"):
            chat.append(("user", text))
            chat.append(("assistant", await complete(server, *chat)))
        assert await history(server, agent) == chat[1:]
        assert len(server.model.seen) == 3


async def test_a_client_that_sends_the_last_message_alone_is_understood_too(database: OneDatabase):
    async with serving(database, ScriptedModel(echo)) as server:
        agent = await server.create_agent(name="sam")
        for _ in range(2):
            await complete(server, ("user", "again"))
        assert await history(server, agent) == [("user", "again"), ("assistant", "re again")] * 2


async def test_several_chats_with_one_agent_are_each_continued(database: OneDatabase):
    async with serving(database, ScriptedModel(echo)) as server:
        agent = await server.create_agent(name="sam")
        first: Chat = [("user", "a1"), ("assistant", await complete(server, ("user", "a1")))]
        await complete(server, ("user", "b1"))
        await complete(server, *first, ("user", "a2"))
        said = [text for role, text in await history(server, agent) if role == "user"]
        assert said == ["a1", "b1", "a2"]


async def test_an_old_chat_is_recognised_however_much_came_after_it(database: OneDatabase):
    async with serving(database, ScriptedModel(echo)) as server:
        agent = await server.create_agent(name="sam")
        old: Chat = [("user", "old"), ("assistant", await complete(server, ("user", "old")))]
        past = [{"role": "user", "text": f"number {n}"} for n in range(200)]
        await server.http.post(f"/v1/agents/{agent}/messages/import", json={"messages": past})
        await complete(server, *old, ("user", "new"))
        said = server.rows("SELECT count(*) FROM messages WHERE content IN ('old', 're old')")
        assert said == [(2,)]


async def test_what_another_model_answered_is_told_to_the_agent_once(database: OneDatabase):
    async with serving(database, ScriptedModel(echo)) as server:
        agent = await server.create_agent(name="sam")
        chat: Chat = [("user", "before"), ("assistant", "said another"), ("user", "one")]
        chat.append(("assistant", await complete(server, *chat)))
        chat += [("user", "aside"), ("assistant", "said the other again"), ("user", "two")]
        chat.append(("assistant", await complete(server, *chat)))
        chat.append(("user", "three"))
        chat.append(("assistant", await complete(server, *chat)))
        assert await history(server, agent) == chat
        shown = [each.text for each in server.model.seen[0].prompt]
        assert any("before" in text for text in shown)


async def test_examples_before_the_conversation_are_told_once(database: OneDatabase):
    examples: Chat = [("user", "cat"), ("assistant", "CAT"), ("user", "dog"), ("assistant", "DOG")]
    async with serving(database, ScriptedModel(echo)) as server:
        agent = await server.create_agent(name="sam")
        for text in ("bee", "ant"):
            await complete(server, *examples, ("user", text))
        said = [text for role, text in await history(server, agent) if role == "user"]
        assert said == ["cat", "dog", "bee", "ant"]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("one", "re one, in other words"),
        ("Today is Monday. one", "re one"),
        ("one", "  re one\n"),
        ("one", "re"),
    ],
    ids=["an edited answer", "a rewritten question", "blanks", "a stream that was stopped"],
)
async def test_an_exchange_that_the_client_changed_is_still_known(
    database: OneDatabase, question: str, answer: str
):
    async with serving(database, ScriptedModel(echo)) as server:
        agent = await server.create_agent(name="sam")
        await complete(server, ("user", "one"))
        await complete(server, ("user", question), ("assistant", answer), ("user", "two"))
        said = [text for _, text in await history(server, agent)]
        assert said == ["one", "re one", "two", "re two"]


async def test_a_question_that_is_put_otherwise_comes_as_a_new_message(database: OneDatabase):
    async with serving(database, ScriptedModel(echo)) as server:
        agent = await server.create_agent(name="sam")
        first: Chat = [("user", "one"), ("assistant", await complete(server, ("user", "one")))]
        await complete(server, *first, ("user", "two"))
        branch: Chat = [*first, ("user", "two, I mean three")]
        branch.append(("assistant", await complete(server, *branch)))
        await complete(server, *branch, ("user", "four"))
        said = [text for role, text in await history(server, agent) if role == "user"]
        assert said == ["one", "two", "two, I mean three", "four"]


async def test_a_message_whose_turn_failed_is_not_said_again_with_the_next_one(
    database: OneDatabase,
):
    async with serving(database, ScriptedModel(echo)) as server:
        agent = await server.create_agent(name="sam")
        failed = await server.http.post(
            "/v1/chat/completions",
            json={"model": "sam", "messages": [{"role": "user", "content": "fail"}]},
        )
        assert failed.status_code == 503
        await complete(server, ("user", "fail"), ("user", "one"))
        said = [text for role, text in await history(server, agent) if role == "user"]
        assert said == ["fail", "one"]


async def test_several_new_messages_are_one(database: OneDatabase):
    async with serving(database, ScriptedModel(echo)) as server:
        agent = await server.create_agent(name="sam")
        chat: Chat = [("user", "one"), ("user", "two")]
        chat.append(("assistant", await complete(server, *chat)))
        await complete(server, *chat, ("user", "three"))
        said = [text for role, text in await history(server, agent) if role == "user"]
        assert said == ["one\n\ntwo", "three"]


async def test_an_answer_of_several_messages_is_recognised(database: OneDatabase):
    steps = [
        say("Well.", request_heartbeat=True),
        say("Hello."),
        say("Bye."),
    ]
    async with serving(database, ScriptedModel(steps)) as server:
        agent = await server.create_agent(name="sam")
        answer = await complete(server, ("user", "one"))
        await complete(server, ("user", "uno"), ("assistant", answer), ("user", "two"))
        said = [text for role, text in await history(server, agent) if role == "user"]
        assert said == ["one", "two"]


async def test_a_repeated_key_gives_the_first_answer(database: OneDatabase):
    async with serving(database, ScriptedModel(echo)) as server:
        agent = await server.create_agent(name="sam")
        chat: Chat = [("user", "before"), ("assistant", "said another"), ("user", "one")]
        for _ in range(2):
            assert await complete(server, *chat, headers={"Idempotency-Key": "k"}) == "re one"
        assert len(await history(server, agent)) == 4


async def test_a_request_that_openais_client_repeats_is_answered_by_the_turn_it_began(
    database: OneDatabase,
):
    async with serving(database, ScriptedModel(echo)) as server:
        agent = await server.create_agent(name="sam")
        await complete(server, ("user", "one"), headers={"x-stainless-retry-count": "0"})
        again = await complete(server, ("user", "one"), headers={"x-stainless-retry-count": "1"})
        assert again == "re one"
        assert len(await history(server, agent)) == 2


async def test_a_repeated_request_whose_first_one_never_came_is_posted(database: OneDatabase):
    async with serving(database, ScriptedModel(echo)) as server:
        agent = await server.create_agent(name="sam")
        again = {"x-stainless-retry-count": "1"}
        chat: Chat = [("user", "go on")]
        chat.append(("assistant", await complete(server, *chat, headers=again)))
        await complete(server, *chat, ("user", "go on"), headers=again)
        await complete(server, ("user", "elsewhere"))
        await complete(server, ("user", "go on"), headers=again)
        said = [text for role, text in await history(server, agent) if role == "user"]
        assert said == ["go on", "go on", "elsewhere", "go on"]


async def test_only_text_counts_and_only_what_is_new_must_be_text(database: OneDatabase):
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    text = {"type": "text", "text": "what is this?"}
    async with serving(database, ScriptedModel(echo)) as server:
        agent = await server.create_agent(name="sam")
        chat: list[tuple[str, Any]] = [("user", [text, picture]), ("assistant", "A bee.")]
        assert await complete(server, *chat, ("user", [text])) == "re what is this?"
        answer = await server.http.post(
            "/v1/chat/completions",
            json={"model": "sam", "messages": [{"role": "user", "content": [text, picture]}]},
        )
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, "messages[0].content[1]")
        assert len(await history(server, agent)) == 4


@pytest.mark.parametrize("last", [("assistant", "Hm."), ("system", "Be brief."), ("user", "  ")])
async def test_a_request_without_a_new_message_is_refused(
    database: OneDatabase, last: tuple[str, str]
):
    async with serving(database, ScriptedModel(echo)) as server:
        await server.create_agent(name="sam")
        answer = await server.http.post(
            "/v1/chat/completions",
            json={"model": "sam", "messages": [{"role": last[0], "content": last[1]}]},
        )
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")
