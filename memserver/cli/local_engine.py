"""The local engine of a command: started, with the settings that suit its model, and started again if it dies."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

from rich.status import Status

from memserver.cli.console import console, say_error
from memserver.errors import SetupError
from memserver.local.engine.paths import MODEL_NAME, EnginePaths
from memserver.local.engine.process import EnginePhase, EngineState, LocalEngine
from memserver.local.engine.state_file import StateFile, state_file
from memserver.prompts import shipped_prompts
from memserver.settings import Settings

LOCAL_MODEL: dict[str, Any] = {
    "llm_mode": "json_schema",
    "llm_context_window": 8192,
    "llm_body": {"temperature": 0},
    "llm_schema": {
        "x-guidance": {"whitespace_flexible": False, "key_separator": ": ", "item_separator": ", "}
    },
    "llm_list_tools": False,
    "llm_thought_last": True,
    # A character has four tokens at most, so a call always ends before max_output_tokens.
    "llm_longest_text": 200,
    "llm_max_output_tokens": 1100,
    "summary_method": "extract",
    "history": "compact",
    "prompts_dir": shipped_prompts() / "small_model",
}
"""What the local model was trained with; what a user sets stays."""
UNTRAINED_MODEL = LOCAL_MODEL | {
    "llm_body": {"temperature": 0, "frequency_penalty": 0.3, "repetition_penalty": 1.1},
    "prompts_dir": shipped_prompts() / "untrained_model",
}
"""What suits the untrained one, measured in docs/local_model.md."""
ENGINE_START_SECONDS = 600
LOOK_SECONDS = 0.25
MOST_VAIN_STARTS = 3
"""Starts in a row that end before the engine was ready, after which it is given up."""


@contextmanager
def local_engine(
    settings: Settings, *, announced: bool = False
) -> Iterator[tuple[LocalEngine, Settings]]:
    """The local engine, loading or ready, kept running, and the settings with which its model is used.

    `announced`: say how it loads, and when it is ready.
    """
    local = LocalEngine(
        settings.home,
        model=settings.local_model,
        native_tools=settings.llm_mode == "tools",
        adapters=settings.local_adapters,
    )
    paths = EnginePaths(settings.home)
    local.start()
    with state_file(paths.root) as file:
        keeper = Thread(target=_keep_running, args=[local, file, announced], daemon=True)
        try:
            file.write(EngineState(EnginePhase.LOADING, "starting"), time.time())
            keeper.start()
            suited = LOCAL_MODEL if local.model == MODEL_NAME else UNTRAINED_MODEL
            unset = {name: suited[name] for name in suited.keys() - settings.model_fields_set}
            where = {
                "llm_base_url": local.base_url,
                "llm_model": local.model,
                "llm_tokenizer": paths.of(local.model) / "tokenizer.json",
                "local_engine_state": file.path,
            }
            yield local, settings.model_copy(update=unset | where)
        finally:
            local.stop()
            keeper.join()


def _keep_running(local: LocalEngine, file: StateFile, announced: bool) -> None:
    """Report how the engine does, and start it again when it has died, until it is stopped or given up."""
    vain = 0
    while True:
        state = _wait_while_loading(local, file, announced)
        vain = 0 if state.phase is EnginePhase.READY else vain + 1
        while state.phase in (EnginePhase.READY, EnginePhase.LOADING):
            time.sleep(LOOK_SECONDS)
            state = local.state()
        if state.phase is EnginePhase.STOPPED:
            return
        given_up = vain == MOST_VAIN_STARTS
        follows = "it is given up" if given_up else "it is started again"
        print(f"memserver: the local model died, {follows}. {state.detail}", file=sys.stderr)
        print(f"  Its log is {local.log}.", file=sys.stderr)
        if given_up:
            file.write(state, time.time())
            return
        try:
            local.start()
        except SetupError as error:
            file.write(EngineState(EnginePhase.FAILED, error.message), time.time())
            say_error(error)
            return


def _wait_while_loading(local: LocalEngine, file: StateFile, announced: bool) -> EngineState:
    """Report each step of the loading, to people as well if it is announced; how it ended."""
    start, since = time.monotonic(), time.time()
    status = Status("", console=console, refresh_per_second=4)
    if announced and console.is_terminal:
        status.start()
    elif announced:
        console.print("The local model is loading; messages wait for it.")
    try:
        while (state := local.state()).phase is EnginePhase.LOADING:
            file.write(state, since)
            seconds = time.monotonic() - start
            status.update(
                f"The local model is loading; messages wait for it. {seconds:.0f} s: {state.detail}"
            )
            time.sleep(LOOK_SECONDS)
    finally:
        status.stop()
    if state.phase is EnginePhase.READY:
        file.write(state, since)
        if announced:
            console.print(f"The local model is ready, after {time.monotonic() - start:.0f} s.")
    return state
