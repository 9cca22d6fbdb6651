"""An agent whose model the endpoint doesn't have: reported clearly, nothing lost, fixed by loading or changing."""

import asyncio
from pathlib import Path

import pytest

from memserver.testing.scripted import Held, say
from tests.support.model_endpoint import endpoint, give_model, load, serving_over_http
from tests.support.server import OneDatabase


@pytest.mark.parametrize("fixed", ["loaded", "changed"])
async def test_a_missing_adapter_is_reported_and_fixed(
    database: OneDatabase, tmp_path: Path, fixed: str
) -> None:
    (tmp_path / "adapter_config.json").write_text("{}", encoding="utf-8")
    with endpoint(lambda prompt, _: say(f"I read {len(prompt)} messages.")) as model:
        async with serving_over_http(database, model.url) as server:
            agent = await server.create_agent(model="late-1234")
            failed = await server.http.post(
                f"/v1/agents/{agent}/messages", json={"text": "Are you there?"}
            )
            error = failed.json()["error"]
            turn = await server.get(f"{agent}/turns/1")
            if fixed == "loaded":
                load(model, "late-1234", tmp_path)
            else:
                await give_model(server, agent, None)
            answer = await server.say(agent, "And now?")
            history = await server.get(f"{agent}/messages", order="asc")
    assert (failed.status_code, error["code"]) == (502, "model_not_found")
    assert "late-1234" in error["message"]
    assert "It has: scripted." in error["hint"]
    assert "memserver models add" in error["hint"]
    assert (turn["state"], turn["error"]["code"]) == ("failed", "model_not_found")
    assert answer["text"] == "I read 3 messages."
    assert [item["text"] for item in history["items"]] == [
        "Are you there?",
        "And now?",
        "I read 3 messages.",
    ]


async def test_two_agents_answer_by_two_adapters_at_once(
    database: OneDatabase, tmp_path: Path
) -> None:
    (tmp_path / "adapter_config.json").write_text("{}", encoding="utf-8")
    waiting: list[asyncio.Event] = []

    def both_are_here(*_: object) -> Held:
        waiting.append(asyncio.Event())
        if len(waiting) == 2:
            for event in waiting:
                event.set()
        return Held(say("Hello."), waiting[-1])

    with endpoint(both_are_here) as model:
        load(model, "one", tmp_path)
        load(model, "two", tmp_path)
        async with serving_over_http(database, model.url) as server:
            agents = [await server.create_agent(model=name) for name in ("one", "two")]
            answers = await asyncio.gather(*(server.say(agent, "Hello.") for agent in agents))
    assert [answer["text"] for answer in answers] == ["Hello."] * 2
    assert sorted(model.asked) == ["one"] * 2 + ["two"] * 2  # the probe and the turn
