"""Another model may write the summaries, with another window than the agent's; or it is not there."""

import pytest

from memserver.errors import ContextOverflow, ModelNotFound, ModelUnavailable
from memserver.testing.scripted import ScriptedModel, say
from tests.support.model_endpoint import endpoint, serving_over_http
from tests.support.server import NamedModels, OneDatabase, Server, serving

WORDS = " ".join(f"word{number}" for number in range(150))


async def talk_until_evicted(server: Server, agent: str, evictions: int = 1) -> None:
    for number in range(300):
        if len(server.rows("SELECT 1 FROM summaries")) >= evictions:
            return
        await server.say(agent, f"{number} {WORDS}")
    raise AssertionError("Nothing was ever evicted.")


def agents_model() -> ScriptedModel:
    return ScriptedModel(lambda _prompt, _tools: say("I see."))


async def test_a_summariser_with_a_small_window_folds_in_pieces_that_fit(
    database: OneDatabase,
) -> None:
    small = ScriptedModel(summary="Notes of words. " * 70, context_window=1024)  # enforces it
    models = NamedModels({None: agents_model(), "small": small})
    async with serving(database, ScriptedModel(), models=models, summary_model="small") as server:
        agent = await server.create_agent()
        await talk_until_evicted(server, agent, 2)
        rows = server.rows("SELECT method, failure, tokens FROM summaries")
    assert [row[:2] for row in rows] == [("model", None)] * 2
    assert all(row[2] <= 256 for row in rows)
    assert len(small.writes) >= 10
    assert all("Notes of words." in str(prompt) for prompt in small.writes[1:])


async def test_what_a_larger_model_wrote_is_shortened_for_a_smaller_summariser(
    database: OneDatabase,
) -> None:
    large = ScriptedModel(
        lambda _prompt, _tools: say("I see."), summary="A long note. " * 250, context_window=8192
    )
    small = ScriptedModel(summary="A short note.", context_window=1024)
    models = NamedModels({None: large, "small": small})
    async with serving(database, ScriptedModel(), models=models) as server:
        agent = await server.create_agent()
        await talk_until_evicted(server, agent)
    async with serving(database, ScriptedModel(), models=models, summary_model="small") as server:
        await talk_until_evicted(server, agent, 2)
        [first, second] = server.rows("SELECT method, tokens FROM summaries ORDER BY until")
    assert first[1] > 700
    assert second[0] == "model"


@pytest.mark.parametrize("failure", [ModelNotFound("gone"), ModelUnavailable("down")])
async def test_a_summariser_that_is_not_there_leaves_an_extract_and_the_turn_continues(
    database: OneDatabase, failure: Exception
) -> None:
    class Missing(ScriptedModel):
        async def context_window(self) -> int:
            raise failure

    models = NamedModels({None: agents_model(), "small": Missing()})
    async with serving(database, ScriptedModel(), models=models, summary_model="small") as server:
        agent = await server.create_agent()
        await talk_until_evicted(server, agent)
        [[method, reason, text]] = server.rows("SELECT method, failure, text FROM summaries")
    assert (method, reason) == ("extractive", f"{failure.code}: {failure.message}")
    assert "word1" in text


async def test_a_summariser_that_the_endpoint_does_not_have_leaves_an_extract(
    database: OneDatabase,
) -> None:
    with endpoint(context_window=4096) as model:
        async with serving_over_http(database, model.url, summary_model="missing") as server:
            agent = await server.create_agent()
            await talk_until_evicted(server, agent)
            rows = set(server.rows("SELECT method, failure FROM summaries"))
            answer = await server.say(agent, "Are you there?")
    reason = "model_not_found: The endpoint does not have the model missing."
    assert rows == {("extractive", reason)}
    assert answer["text"]


async def test_a_piece_that_has_more_tokens_than_we_counted_is_folded_in_halves(
    database: OneDatabase,
) -> None:
    def summarise(prompt: object) -> str | Exception:
        return ContextOverflow("too long") if str(prompt).count("word149") > 3 else "Notes."

    small = ScriptedModel(summary=summarise, context_window=4096, enforce_window=False)
    models = NamedModels({None: agents_model(), "small": small})
    async with serving(database, ScriptedModel(), models=models, summary_model="small") as server:
        agent = await server.create_agent()
        await talk_until_evicted(server, agent)
        rows = server.rows("SELECT method, text FROM summaries")
    assert rows == [("model", "Notes.")]


async def test_summaries_by_extract_ask_no_model_and_are_no_failure(
    database: OneDatabase,
) -> None:
    model = agents_model()
    async with serving(database, model, summary_method="extract") as server:
        agent = await server.create_agent()
        await server.say(agent, "My cello is called Hugo, and I bought it in 1998.")
        await talk_until_evicted(server, agent, 2)
        rows = server.rows("SELECT method, failure, text FROM summaries")
        await server.say(agent, "And now?")
    assert [row[:2] for row in rows] == [("extractive", None)] * 2
    assert all("My cello is called Hugo, and I bought it in 1998." in row[2] for row in rows)
    assert "My cello is called Hugo" in model.last_prompt[0].text
    assert model.writes == []
