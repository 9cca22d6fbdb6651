"""Thirty messages in a row to the real local model, over HTTP, the database consistent after each."""

from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.conversation import MESSAGES, Tally
from tests.support.processes import rows, server, show
from tests.support.real_engine import engine_home
from tests.support.server import OneDatabase

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]

BROKEN = {
    "a counter is off": """SELECT 1 FROM agent_state s
        WHERE message_count <> (SELECT count(*) FROM messages m WHERE m.agent_id = s.agent_id)""",
    "a turn is open": "SELECT 1 FROM turns WHERE state IN ('waiting', 'running')",
    "the inbox is not empty": "SELECT 1 FROM agent_state WHERE done_turn + 1 <> next_turn",
    "the lease is held": "SELECT 1 FROM agent_state WHERE lease_owner IS NOT NULL",
    "a call has no result": "SELECT 1 FROM tool_calls WHERE result IS NULL",
    "a step made no call": """SELECT 1 FROM messages m WHERE role = 'assistant'
        AND NOT EXISTS (SELECT 1 FROM tool_calls c
                        WHERE c.agent_id = m.agent_id AND c.position = m.position)""",
    "an ended turn has no reason": "SELECT 1 FROM turns WHERE stop_reason IS NULL",
}


def well_formed(answer: dict[str, Any]) -> bool:
    steps = [message for message in answer["messages"] if message["role"] == "assistant"]
    return bool(steps) and all(step["tool_call"]["state"] in ("done", "failed") for step in steps)


async def test_thirty_messages_from_the_servers_start_on_are_answered_by_the_real_model(
    tmp_path: Path, database: OneDatabase
) -> None:
    settings = {
        "home": engine_home(),
        "database_url": database.owner,
        "database_app_url": database.app,
    }
    tally = Tally()
    with server(tmp_path, settings) as process:
        # The engine still loads, and the first message waits for it.
        async with httpx2.AsyncClient(base_url=f"{process.url}/v1", timeout=600) as http:
            agent = (await http.post("/agents", json={})).json()["id"]
            for text in MESSAGES:
                answer = await http.post(f"/agents/{agent}/messages", json={"text": text})
                tally.add(text, answer, answer.elapsed.total_seconds())
                assert answer.status_code == 200, answer.text
                assert well_formed(answer.json()), answer.text
                for problem, query in BROKEN.items():
                    assert not rows(database, query), problem
    show("conversation", "\n".join([*tally.transcript, str(tally.figures())]))
    assert tally.turns == 30
    assert tally.stop_reasons["message_sent"] >= 0.8 * 30
