"""The texts a model reads can be a user's own."""

from pathlib import Path

from memserver.testing.scripted import ScriptedModel, say
from tests.support.server import OneDatabase, serving


async def test_a_users_own_prompt_takes_the_place_of_ours(
    database: OneDatabase, tmp_path: Path
) -> None:
    (tmp_path / "system.md").write_text("You are a pirate.")
    model = ScriptedModel([say("Arr!"), say("Beep.")])
    async with serving(database, model, prompts_dir=tmp_path) as server:
        agent = await server.create_agent()
        await server.say(agent, "hello")
        assert model.last_prompt[0].text.startswith("You are a pirate.\n\n### Memory")
        robot = await server.create_agent(system_prompt="You are a robot. {{ 7 * 7 }}")
        await server.say(robot, "hello")
    assert model.last_prompt[0].text.startswith("You are a robot. {{ 7 * 7 }}\n\n### Memory")


async def test_a_prompt_that_requests_too_much_is_a_clear_error(
    database: OneDatabase, tmp_path: Path
) -> None:
    (tmp_path / "system.md").write_text("Hello {{ nobody }}")
    async with serving(database, ScriptedModel([]), prompts_dir=tmp_path) as server:
        agent = await server.create_agent()
        failed = await server.http.post(f"/v1/agents/{agent}/messages", json={"text": "hello"})
    error = failed.json()["error"]
    assert (failed.status_code, error["code"]) == (503, "setup_error")
    assert "system.md" in error["message"]
    assert "MEMSERVER_PROMPTS_DIR" in error["hint"]


async def test_the_working_context_stands_before_the_messages_or_after_them_as_set(
    database: OneDatabase,
) -> None:
    model = ScriptedModel([say("Hello.")] * 3)
    sections = [{"name": "human", "text": "Likes figs."}]
    async with serving(database, model, prompt_order="working_context_last") as server:
        last = await server.create_agent(sections=sections)
        first = await server.create_agent(
            sections=sections, options={"prompt_order": "working_context_first"}
        )
        await server.say(last, "hi")
        placed_last = model.last_prompt
        await server.say(first, "hi")
        before = model.last_prompt
        await server.say(last, "and again")
    assert [part.role for part in before] == ["system", "user"]
    assert "Likes figs." in before[0].text
    assert [part.role for part in placed_last] == ["system", "user", "system"]
    assert "Likes figs." not in placed_last[0].text
    assert "Likes figs." in placed_last[-1].text
    grown = model.last_prompt
    assert grown[:2] == placed_last[:2], (
        "all before the working context can come from a prefix cache"
    )
    assert [part.role for part in grown] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
        "system",
    ]
