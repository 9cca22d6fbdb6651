"""How the model's endpoint is asked shows where people look: the agent's context, /v1/ready and doctor."""

import pytest

from memserver.cli.doctor import examine_model
from memserver.errors import SetupError
from memserver.settings import Settings
from memserver.testing.scripted_server import Abilities
from memserver.wiring.providers import Models
from memserver.wiring.services import check_settings
from tests.support.model_endpoint import endpoint, serving_over_http
from tests.support.server import OneDatabase

WITHOUT_TOOLS = Abilities(tools="refused", tokenize=False)


async def test_a_fallback_shows_in_the_agents_context_and_in_readiness(
    database: OneDatabase,
) -> None:
    with endpoint(abilities=WITHOUT_TOOLS) as model:
        async with serving_over_http(database, model.url, llm_model="scripted") as server:
            agent = await server.create_agent()
            before = (await server.get(f"{agent}/context"))["model"]
            await server.say(agent, "Hello.")
            after = (await server.get(f"{agent}/context"))["model"]
            ready = (await server.http.get("/v1/ready")).json()
    assert (before["name"], before["mode"], before["changes"]) == ("scripted", "auto", [])
    assert after["mode"] == "json_schema"
    assert after["changes"][0].startswith(
        "mode is json_schema, not tools: native tool calls refused"
    )
    assert after["window_is_assumed"] is False
    [component] = [each for each in ready["components"] if each["name"] == "model"]
    assert component == {"name": "model", "ready": True, "detail": "scripted, mode json_schema"}


async def test_doctor_says_how_the_model_is_asked_and_why() -> None:
    with endpoint(abilities=WITHOUT_TOOLS) as model:
        models = Models(Settings(_env_file=None, llm_base_url=model.url, llm_model="scripted"))
        found = {each.name: each.detail async for each in examine_model(models.get(None))}
        await models.aclose()
    assert found["model"].endswith("mode json_schema")
    assert "native tool calls refused" in found["adjusted"]
    assert found["token counts"].startswith("estimated")


def test_a_typo_in_the_profile_stops_the_start_and_is_named() -> None:
    with pytest.raises(SetupError, match="there is no field tool_choise") as caught:
        check_settings(Settings(_env_file=None, llm_profile={"tool_choise": "auto"}))
    assert "tool_choice" in caught.value.hint
