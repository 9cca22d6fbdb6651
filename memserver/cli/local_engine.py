"""The local engine behind a command: started, with the settings that suit its model, and started again if it dies."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from memserver.cli.console import console, say_error
from memserver.errors import ModelError
from memserver.local.engine.paths import MODEL_NAME, EnginePaths
from memserver.local.engine.process import EnginePhase, LocalEngine
from memserver.prompts import shipped_prompts
from memserver.settings import Settings

LOCAL_MODEL = {
    "llm_mode": "json_schema",
    "llm_context_window": "8192",
    "llm_body": json.dumps({"temperature": 0}),
    "llm_schema": json.dumps(
        {
            "x-guidance": {
                "whitespace_flexible": False,
                "key_separator": ": ",
                "item_separator": ", ",
            }
        }
    ),
    "llm_list_tools": "false",
    "llm_thought_last": "true",
    # A character has four tokens at most, so a call always ends before max_output_tokens.
    "llm_longest_text": "200",
    "llm_max_output_tokens": "1100",
    "summary_method": "extract",
    "prompts_dir": str(shipped_prompts() / "small_model"),
}
"""What the local model was trained with; what a user sets stays."""
UNTRAINED_MODEL = LOCAL_MODEL | {
    "llm_body": json.dumps({"temperature": 0, "frequency_penalty": 0.3, "repetition_penalty": 1.1}),
    "prompts_dir": str(shipped_prompts() / "untrained_model"),
}
"""What suits the untrained one, measured in docs/local_model.md."""
ENGINE_START_SECONDS = 600
ENGINE_LOOK_SECONDS = 2
MOST_ENGINE_STARTS = 20


@contextmanager
def local_engine(settings: Settings) -> Iterator[LocalEngine]:
    """The local engine, loading or ready; our settings and our children's point to it."""
    local = LocalEngine(
        settings.home,
        model=settings.local_model,
        native_tools=settings.llm_mode == "tools",
        adapters=settings.local_adapters,
    )
    local.start()
    try:
        os.environ.update(
            MEMSERVER_LLM_BASE_URL=local.base_url,
            MEMSERVER_LLM_MODEL=local.model,
            MEMSERVER_LLM_TOKENIZER=str(
                EnginePaths(settings.home).of(local.model) / "tokenizer.json"
            ),
        )
        suited = LOCAL_MODEL if local.model == MODEL_NAME else UNTRAINED_MODEL
        for name, value in suited.items():
            if name not in settings.model_fields_set:
                os.environ[f"MEMSERVER_{name.upper()}"] = value
        yield local
    finally:
        local.stop()


def watch(local: LocalEngine) -> None:
    """Say when the engine is ready, and start it again when it has died."""
    for _ in range(MOST_ENGINE_STARTS):
        try:
            asyncio.run(local.wait_until_ready(within=ENGINE_START_SECONDS))
            console.print("The local model is ready.")
            while local.state().phase not in (EnginePhase.FAILED, EnginePhase.STOPPED):
                time.sleep(ENGINE_LOOK_SECONDS)
        except ModelError as error:
            say_error(error)
        state = local.state()
        if state.phase is EnginePhase.STOPPED:
            return
        print(
            f"memserver: the local model died, starting it again. {state.detail}", file=sys.stderr
        )
        local.start()
    print("memserver: the local model is given up; its log says why.", file=sys.stderr)
