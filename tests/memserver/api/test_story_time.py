"""An agent whose time is that of its messages: histories that are replayed."""

from datetime import UTC, datetime

from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.server import OneDatabase, serving

ASKED = "2021-05-04T10:30:00Z"
STORY = {"options": {"clock": "messages"}}


async def test_the_time_of_a_message_is_the_time_of_the_whole_turn(database: OneDatabase) -> None:
    note = {"content": "Ada has a cat.", "request_heartbeat": True, "inner_thought": "Keep."}
    today = {
        "start_date": "today",
        "end_date": "today",
        "inner_thought": "?",
        "request_heartbeat": True,
    }
    model = ScriptedModel(
        [
            Call("archival_memory_insert", note),
            Call("recall_memory_search_date", today),
            say("It was today."),
        ]
    )
    async with serving(database, model) as server:
        agent = await server.create_agent(**STORY)
        past = [
            {"role": "user", "text": "Yesterday's news", "created_at": "2021-05-03T09:00:00Z"},
            {"role": "user", "text": "I bought a cat", "created_at": "2021-05-04T09:00:00Z"},
        ]
        await server.http.post(f"/v1/agents/{agent}/messages/import", json={"messages": past})
        answer = (
            await server.http.post(
                f"/v1/agents/{agent}/messages", json={"text": "What happened?", "created_at": ASKED}
            )
        ).json()
        passages = await server.get(f"{agent}/archival")
    asked = datetime(2021, 5, 4, 10, 30, tzinfo=UTC)
    assert {datetime.fromisoformat(each["created_at"]) for each in answer["messages"]} == {asked}
    [passage] = passages["items"]
    assert datetime.fromisoformat(passage["created_at"]) == asked
    result = answer["messages"][1]["tool_call"]["result"]
    assert "I bought a cat" in result
    assert "Yesterday's news" not in result
    this_year = str(datetime.now(UTC).year)
    assert not any(this_year in message.text for message in model.last_prompt)
    assert "[2021-05-04 10:30" in "".join(message.text for message in model.last_prompt)


async def test_a_time_is_refused_by_an_agent_with_the_servers_clock(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel([say("Hello.")])) as server:
        agent = await server.create_agent()
        refused = await server.http.post(
            f"/v1/agents/{agent}/messages", json={"text": "Hi", "created_at": ASKED}
        )
        assert refused.status_code == 422 or refused.status_code == 400
        assert refused.json()["error"]["code"] == "invalid_input"
        assert (await server.say(agent, "Hi"))["text"] == "Hello."
        assert len((await server.get(f"{agent}/messages"))["items"]) == 2


async def test_a_repeated_message_must_have_the_same_time(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel([say("Once.")])) as server:
        agent = await server.create_agent(**STORY)
        key = {"Idempotency-Key": "k"}
        path = f"/v1/agents/{agent}/messages"
        first = await server.http.post(path, json={"text": "Hi", "created_at": ASKED}, headers=key)
        again = await server.http.post(path, json={"text": "Hi", "created_at": ASKED}, headers=key)
        other = await server.http.post(
            path, json={"text": "Hi", "created_at": "2022-01-01T00:00:00Z"}, headers=key
        )
    assert first.json() == again.json()
    assert other.status_code == 409
