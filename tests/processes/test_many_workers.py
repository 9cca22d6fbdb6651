"""Many processes over one database: one order, nothing lost, nothing done twice, whoever dies."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import (
    Client,
    Endpoint,
    HoldingModel,
    client,
    eventually,
    holding_model,
    lease_holder,
    rows,
    server,
    settings_on,
    turn_states,
)
from tests.support.server import OneDatabase

pytestmark = pytest.mark.slow


async def test_fifty_messages_at_once_to_two_worker_processes_are_answered_in_one_order(
    folder: Path, database: OneDatabase, echo: Endpoint
) -> None:
    texts = [f"message {number}" for number in range(50)]
    with server(folder, settings_on(database, echo.url), "--workers", "2") as process:
        async with client(process) as user:
            agent = await user.create_agent()
            answers = await asyncio.gather(*(user.post(agent, text) for text in texts))
            history = await user.history(agent)
            measured = (await user.http.get("/metrics")).text
    # Both processes' turns, whichever of them is asked, and their requests to the model.
    assert (
        'memserver_turn_duration_seconds_count{memserver_stop_reason="message_sent"} 50.0'
        in measured
    )
    model = (
        'gen_ai_operation_name="chat",gen_ai_provider_name="openai",gen_ai_request_model="scripted"'
    )
    assert (
        f'gen_ai_client_operation_duration_seconds_count{{error_type="",{model}}} 50.0' in measured
    )
    assert f'gen_ai_client_token_usage_count{{{model},gen_ai_token_type="output"}} 50.0' in measured
    assert [answer.status_code for answer in answers] == [200] * 50
    assert [answer.json()["text"] for answer in answers] == [f"echo: {text}" for text in texts]
    asked = [
        text
        for (text,) in rows(
            database, "SELECT content FROM messages WHERE role = 'user' ORDER BY position"
        )
    ]
    assert sorted(asked) == sorted(texts)
    turn_of = {text: answer.json()["turn"] for text, answer in zip(texts, answers, strict=True)}
    assert [turn_of[text] for text in asked] == list(range(1, 51))
    said = [item["text"] for item in history]
    assert said == [part for text in asked for part in (text, f"echo: {text}")]
    assert turn_states(database) == ["done"] * 50
    assert rows(database, "SELECT DISTINCT attempts FROM turns") == [(1,)]


async def test_a_killed_servers_ten_messages_are_answered_by_the_other_server_once_and_in_order(
    folder: Path, database: OneDatabase
) -> None:
    with (
        holding_model() as model,
        server(folder, settings_on(database, model.url, lease_seconds=2)) as doomed,
        server(folder, settings_on(database, model.url, lease_seconds=2)) as other,
    ):
        async with client(doomed) as one, client(other) as two:
            agent = await one.create_agent()
            texts, posts = await post_ten(one, two, agent, model, database)
            assert lease_holder(database) == doomed.pid
            doomed.kill()
            lost, *answered = await asyncio.gather(*posts, return_exceptions=True)
            assert isinstance(lost, Exception)
            await eventually(lambda: turn_states(database) == ["done"] * 10)
            history = await two.history(agent)
    assert [item["text"] for item in history] == said_once(texts, model)
    assert [answer.json()["text"] for answer in answered] == model.given[1:]
    assert_stored_once(database, model)


async def test_a_killed_worker_process_is_replaced_and_its_messages_are_answered(
    folder: Path, database: OneDatabase
) -> None:
    with (
        holding_model() as model,
        server(
            folder, settings_on(database, model.url, lease_seconds=2), "--workers", "2"
        ) as process,
    ):
        async with client(process) as user:
            agent = await user.create_agent()
            texts, posts = await post_ten(user, user, agent, model, database)
            victim, before = lease_holder(database), process.pids()
            assert victim in before
            assert victim != process.pid
            os.kill(victim, signal.SIGKILL)
            await asyncio.gather(*posts, return_exceptions=True)
            await eventually(lambda: turn_states(database) == ["done"] * 10)
            await eventually(lambda: set(process.pids()) - set(before))
            await eventually(lambda: len(process.pids()) == len(before))
            assert victim not in process.pids()
            died = f"Worker process {victim} has died (killed by SIGKILL); process "
            assert died in process.log_text()
            history = await user.history(agent)
            assert await user.say(agent, "still there?") == model.given[-1]
    assert [item["text"] for item in history] == said_once(texts, model)
    assert_stored_once(database, model)


async def post_ten(
    first: Client, others: Client, agent: str, model: HoldingModel, database: OneDatabase
) -> tuple[list[str], list[asyncio.Task[Any]]]:
    """Ten messages in a known order; the model holds the first one's answer, the others wait."""
    texts = [f"m{number}" for number in range(10)]
    posts = [asyncio.create_task(first.post(agent, texts[0]))]
    await eventually(lambda: model.asked == texts[:1])
    for number, text in enumerate(texts[1:], start=2):
        posts.append(asyncio.create_task(others.post(agent, text)))
        await eventually(lambda: len(turn_states(database)) == number)  # noqa: B023 - awaited here
    return texts, posts


def said_once(texts: list[str], model: HoldingModel) -> list[str]:
    """The history in which each message has the one answer that the model gave to it."""
    return [
        part for text, answer in zip(texts, model.given, strict=False) for part in (text, answer)
    ]


def assert_stored_once(database: OneDatabase, model: HoldingModel) -> None:
    stored = rows(
        database, "SELECT content FROM messages WHERE role = 'assistant' ORDER BY position"
    )
    assert [text for (text,) in stored] == model.given
    attempts = rows(database, "SELECT attempts FROM turns WHERE turn <= 10 ORDER BY turn")
    assert attempts == [(2,)] + [(1,)] * 9
