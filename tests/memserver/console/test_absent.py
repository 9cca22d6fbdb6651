"""The server without its console."""

import sys

import pytest

from memserver.testing.scripted import ScriptedModel
from tests.support.server import OneDatabase, serving

BROWSER = {"Accept": "text/html"}


async def test_the_server_runs_with_the_console_switched_off(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel(), console=False) as server:
        first = await server.http.get("/", headers=BROWSER)
        assert first.status_code == 200
        assert "memserver chat sam" in first.text
        assert (await server.http.get("/console/agents")).status_code == 404


async def test_the_server_runs_where_the_console_is_not_installed(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memserver.api.app.CONSOLE", "memserver.no_console")
    # A rate limit: an application of its own
    async with serving(database, ScriptedModel(), rate_limit=1000) as server:
        assert "memserver.no_console" not in sys.modules
        assert (await server.http.get("/", headers=BROWSER)).status_code == 200
        assert (await server.http.get("/console/agents")).status_code == 404


async def test_a_browser_is_led_to_the_console_and_a_program_is_not(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        led = await server.http.get("/", headers=BROWSER)
        assert (led.status_code, led.headers["location"]) == (303, "/console/agents")
        assert (await server.http.get("/")).json()["name"] == "memserver"
