"""Waits for the local engine, which another process starts, and starts again when it has died."""

import asyncio
from pathlib import Path

from memserver.errors import ModelError, ModelUnavailable
from memserver.local.engine.process import EnginePhase, EngineState
from memserver.local.engine.state_file import StateFile
from memserver.openai_http.client import EndpointClient

_LOOK_SECONDS = 0.25
REMEDY = "Its log, {log}, says why. It is started again if it died; `memserver doctor` checks it."
_GIVEN_UP = (
    "Its log, {log}, says why. Fix that and start `memserver serve` again, or set "
    "MEMSERVER_LLM_BASE_URL to use another model."
)


class EngineReadiness:
    """Whether the local engine answers. Its process, which only its owner sees, is not looked at."""

    def __init__(self, file: Path, log: Path, client: EndpointClient) -> None:
        self._file = StateFile(file)
        self._log = log
        self._client = client
        self._answered = False
        self._looking = asyncio.Lock()

    async def wait(self) -> None:
        """Wait until the engine answers; as long as it is believed to, return at once.

        Raises:
            ModelUnavailable: it is given up, or its owner is gone.
        """
        if not self._answered:
            await self._wait()

    async def is_lost(self) -> bool:
        """Whether an engine that failed to answer is gone: then it is waited for again."""
        return not await self._answers()

    def loading(self) -> str:
        """What it does before it can answer, and for how long; empty where it is not loading."""
        if self._answered:
            return ""
        state = self._file.read()
        return state.detail if state.phase is EnginePhase.LOADING else ""

    def explain(self, error: ModelUnavailable) -> ModelUnavailable:
        """Why it gave no answer: it loads, it is given up, or as the error says."""
        state = self._file.read()
        match state.phase:
            case EnginePhase.LOADING:
                return ModelUnavailable(f"loading: {state.detail}", hint="Messages wait for it.")
            case EnginePhase.READY:
                return error
            case EnginePhase.FAILED | EnginePhase.STOPPED:
                return self._given_up(state)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _wait(self) -> None:
        async with self._looking:  # one looks, the others wait for what it finds
            while not self._answered and not await self._answers():
                state = self._file.read()
                if state.phase in (EnginePhase.FAILED, EnginePhase.STOPPED):
                    raise self._given_up(state)
                await asyncio.sleep(_LOOK_SECONDS)

    def _given_up(self, state: EngineState) -> ModelUnavailable:
        return ModelUnavailable(
            f"The local engine does not run. {state.detail}".strip(),
            hint=_GIVEN_UP.format(log=self._log),
        )

    async def _answers(self) -> bool:
        try:
            await self._client.check()
        except ModelError:
            self._answered = False
        else:
            self._answered = True
        return self._answered
