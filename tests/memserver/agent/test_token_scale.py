"""The budget is in the model's own tokens, also where the endpoint can't count texts for us."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memserver.memory.scale import LEAST, MARGIN, MOST, SLACK, after_overflow, learn
from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Call, RawReply, ScriptedModel, count_bytes, say
from tests.support.model_endpoint import (
    count_as_bpe,
    endpoint,
    give_model,
    load,
    serving_over_http,
)
from tests.support.server import NamedModels, OneDatabase, Server, serving

RESERVED = 512
CAPACITY = 8192 - RESERVED
ENGLISH = (
    "Today we walked along the river to the old mill, and Anna told me how her grandmother kept bees "
    "behind the house until the flood came. Day {}."
)
CHINESE = (
    "今天我们沿着河边走到旧磨坊。安娜告诉我她的祖母在房子后面养蜜蜂。直到洪水来了。第{0}天。" * 4
)
EMOJI = "🎂🎈🦀🚀" * 20 + " {}"


class Talk:
    """Messages to one agent; the real tokens of each turn's prompt, as the endpoint counted them."""

    def __init__(self, server: Server, agent: str) -> None:
        self.server = server
        self.agent = agent
        self.real: list[int] = []

    async def say(self, text: str) -> None:
        answer = await self.server.say(self.agent, text.format(len(self.real)))
        assert answer["steps"] in (1, 2)  # an alert has a step of its own
        self.real.append(answer["usage"]["prompt_tokens"] // answer["steps"])

    async def until(self, query: str, text: str) -> None:
        for _ in range(400):
            if self.server.rows(query):
                return
            await self.say(text)
        raise AssertionError(f"It never came: {query}")

    async def context(self) -> dict[str, Any]:
        return await self.server.get(f"{self.agent}/context")


ALERT = "SELECT 1 FROM messages WHERE starts_with(content, 'Memory pressure')"
EVICTION = "SELECT 1 FROM summaries"


async def test_alert_and_eviction_come_at_the_real_fill_without_tokenize(
    database: OneDatabase,
) -> None:
    with endpoint() as model:
        async with serving_over_http(database, model.url) as server:
            talk = Talk(server, await server.create_agent())
            await talk.until(ALERT, ENGLISH)
            before = talk.real[-2]  # the last is the mean of two prompts, with other tools
            assert 0.63 * CAPACITY <= before <= 0.74 * CAPACITY
            assert not server.rows(EVICTION)
            await talk.until(EVICTION, ENGLISH)
            assert 0.92 * CAPACITY <= max(talk.real) <= CAPACITY
            assert talk.real[-1] < 0.7 * CAPACITY
            context = await talk.context()
    assert model.refused == 0
    assert model.statuses.count(("/tokenize", 404)) <= 5  # after pauses that grow
    assert context["window"] - context["reserved"] == CAPACITY
    assert 0.5 < context["token_scale"] < 1.1


async def test_what_the_context_shows_is_what_the_endpoint_counts(database: OneDatabase) -> None:
    with endpoint() as model:
        async with serving_over_http(database, model.url) as server:
            talk = Talk(server, await server.create_agent())
            before = await talk.context()
            for _ in range(20):
                await talk.say(ENGLISH)
                context = await talk.context()
                answer = context["queue"][-1]["tokens"]
                assert 1 <= (context["used"] - answer) / talk.real[-1] <= 1.08
            parts = {part["name"]: part["tokens"] for part in context["parts"]}
    assert before["used"] < 0.5 * CAPACITY
    assert parts["queue"] == sum(message["tokens"] for message in context["queue"])
    assert abs(sum(parts.values()) - context["used"]) < 16


@pytest.mark.parametrize("text", [CHINESE, EMOJI], ids=["Chinese", "emoji"])
async def test_a_change_of_language_overflows_by_no_more_than_a_retry_fixes(
    database: OneDatabase, text: str
) -> None:
    with endpoint() as model:
        async with serving_over_http(database, model.url) as server:
            talk = Talk(server, await server.create_agent())
            while not talk.real or talk.real[-1] < 0.6 * CAPACITY:
                await talk.say(ENGLISH)
            english = (await talk.context())["token_scale"]
            for _ in range(60):
                await talk.say(text)
            context = await talk.context()
            evictions = len(server.rows(EVICTION))
    assert max(talk.real) <= CAPACITY
    assert evictions >= 2
    assert model.refused <= 1
    assert context["token_scale"] > 1.2 * english


async def test_one_dense_message_in_a_sparse_conversation_is_answered(
    database: OneDatabase,
) -> None:
    with endpoint() as model:
        async with serving_over_http(database, model.url) as server:
            talk = Talk(server, await server.create_agent())
            await talk.say(ENGLISH)
            await talk.say("🦀" * 20_000)
            await talk.say("Did you see it?")
    assert max(talk.real) <= CAPACITY


async def test_a_scale_belongs_to_the_model_it_was_learnt_of(
    database: OneDatabase, tmp_path: Path
) -> None:
    (tmp_path / "adapter_config.json").write_text("{}", encoding="utf-8")
    with endpoint() as model:
        load(model, "other", tmp_path)
        async with serving_over_http(database, model.url) as server:
            talk = Talk(server, await server.create_agent())
            first = (await talk.context())["token_scale"]
            await talk.say(ENGLISH)
            learnt_scale = (await talk.context())["token_scale"]
            await give_model(server, talk.agent, "other")
            assert (await talk.context())["token_scale"] == first
            await talk.say(ENGLISH)
            await give_model(server, talk.agent, None)
            assert (await talk.context())["token_scale"] == first
            await talk.say(ENGLISH)
            again = (await talk.context())["token_scale"]
    assert learnt_scale != first
    assert again == pytest.approx(learnt_scale, rel=0.1)


async def test_usage_that_says_nothing_changes_nothing(database: OneDatabase) -> None:
    class Silent(ScriptedModel):
        def _prompt_tokens(self, *_: Any) -> int:
            return 0

    async with serving(database, Silent([say("Hi."), say("Hi.")])) as server:
        agent = await server.create_agent()
        await server.say(agent, "hello")
        await server.say(agent, "hello")
        context = await server.get(f"{agent}/context")
        assert server.rows("SELECT token_scale FROM agent_state") == [(None,)]
    assert context["token_scale"] == 1


async def test_tools_that_are_not_offered_are_not_counted_as_seen(database: OneDatabase) -> None:
    """At the last step only send_message is offered; the scale must not shrink by the others' tokens."""
    search = Call("recall_memory_search", {"query": "x"})

    def rule(_: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Call:
        return say("Here.") if len(tools) == 1 else search

    async with serving(database, ScriptedModel(rule)) as server:
        agent = await server.create_agent(options={"max_steps": 2})
        for _ in range(4):
            await server.say(agent, "hello")
        context = await server.get(f"{agent}/context")
    assert 0.95 < context["token_scale"] < 1.1


async def test_messages_are_counted_by_the_agents_own_model(database: OneDatabase) -> None:
    def rule(_: Sequence[PromptMessage], __: Sequence[ToolSpec]) -> Call | RawReply:
        return say("ok")

    words = ScriptedModel(rule)
    in_bytes = ScriptedModel(rule, count=count_bytes, context_window=100_000)
    counted = "SELECT tokens FROM messages WHERE content = %s"
    texts = [f"Long enough to tell words from bytes, number {number}." for number in range(5)]
    models = NamedModels({None: words, "bytes": in_bytes})
    async with serving(database, words, models=models) as server:
        agent = await server.create_agent(model="bytes")
        for text in texts[:2]:
            await server.say(agent, text)
        imported = await server.http.post(
            f"/v1/agents/{agent}/messages/import",
            json={"messages": [{"role": "user", "text": texts[2]}]},
        )
        assert imported.status_code == 200
        await give_model(server, agent, None)
        for text in texts[3:]:
            await server.say(agent, text)
        tokens = [server.rows(counted, text)[0][0] for text in texts]
    assert all(count > len(text) for count, text in zip(tokens[:3], texts[:3], strict=True))
    assert all(count < 20 for count in tokens[3:])


def test_a_scale_grows_at_once_shrinks_by_half_and_stays_when_it_is_near() -> None:
    assert learn(None, 1000, 850) == pytest.approx(0.85 * MARGIN, abs=1e-4)
    assert learn(0.85, 1000, 900) == 0.9 * MARGIN
    assert learn(1.2, 1000, 800) == pytest.approx((1.2 + 0.8 * MARGIN) / 2)
    assert learn(0.85 * MARGIN, 1000, 851) == 0.85 * MARGIN
    assert learn(0.85 * SLACK, 1000, 850) == 0.85 * SLACK


def test_exact_counts_take_the_scale_below_one_by_no_message_but_raise_none_that_is_below() -> None:
    assert learn(None, 1000, 600, exact=True) == 1.0
    assert learn(1.2, 1000, 600, exact=True) == 1.0
    assert learn(0.7, 1000, 600, exact=True) == 0.7
    assert learn(0.7, 1000, 900, exact=True) == pytest.approx(0.9 * MARGIN)


def test_a_scale_keeps_to_what_can_be() -> None:
    assert learn(0.3, 1000, 0) == 0.3
    assert learn(0.3, 1000, int(LEAST * 1000) - 1) == 0.3
    assert learn(0.3, 0, 1000) == 0.3
    assert learn(None, 10, 1000) == pytest.approx(MOST * MARGIN)


def test_after_an_overflow_the_prompt_counts_as_too_long_but_no_more_than_doubled() -> None:
    scale = after_overflow(0.3, 1000, 320)
    assert scale * 1000 > 320
    assert after_overflow(0.3, 1000, 3000) == 0.6
    assert after_overflow(0.3, 0, 3000) == 0.3


def test_the_test_tokenizer_is_like_a_real_one() -> None:
    assert 0.2 < count_as_bpe(ENGLISH) / len(ENGLISH.encode()) < 0.3
    assert 0.35 < count_as_bpe(CHINESE) / len(CHINESE.encode()) < 0.6
    assert 0.6 < count_as_bpe(EMOJI) / len(EMOJI.encode()) < 0.8
