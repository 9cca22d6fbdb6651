"""memserver as a system of an evaluation, with a scripted model."""

from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from memserver.client import AsyncClient
from memserver.settings import Settings
from memserver.testing.scripted import Rule
from memserver_evals.systems.memory import AgentSetup, MemorySystem, OracleSystem
from memserver_evals.systems.recording import Recorder
from memserver_evals.wiring import own_servers
from tests.memserver_evals.support import endpoints
from tests.support.server import OneDatabase


@asynccontextmanager
async def memory(
    rule: Rule,
    database: OneDatabase,
    monkeypatch: pytest.MonkeyPatch,
    home: Path,
    *,
    oracle: bool = False,
    served: Mapping[str, Any] | None = None,
    **setup: Any,
) -> AsyncIterator[MemorySystem]:
    with ExitStack() as stack:
        stack.enter_context(endpoints(rule, monkeypatch, home, **(served or {})))
        name = "ten-searches-pasted" if oracle else "memserver"
        found = stack.enter_context(own_servers(Settings(), [name], None, database.superuser))
        if oracle:
            async with AsyncClient(found.oracle) as client:
                yield OracleSystem(client, Recorder(found.oracle))
        else:
            async with AsyncClient(found.memserver) as client:
                recorder = Recorder(found.recorder)
                yield MemorySystem(client, setup=AgentSetup(**setup), recorder=recorder)
