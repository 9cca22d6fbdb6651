"""A local engine that loads as long as a test wants: a home in which it is installed, and its process.

The process speaks as the scripted model does once the test has let it, and dies when it is asked to.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from memserver.local.engine import install
from memserver.local.engine.paths import EnginePaths
from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Step
from memserver.testing.scripted_rules import echo, last_user_text
from memserver.testing.scripted_server import create_scripted_app

DEADLY = "die"
"""A message that the engine dies of."""
DEADLY_ONCE = "die once"
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class StandInEngine:
    """The home of an engine that is installed; each of its processes waits to be let go."""

    home: Path

    @classmethod
    def install(cls, home: Path) -> "StandInEngine":
        paths = EnginePaths(home)
        paths.python.parent.mkdir(parents=True)
        paths.python.write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m {__name__} {home} "$@"\n',
            encoding="utf-8",
        )
        paths.python.chmod(0o755)
        install._stamp(paths.venv, install._environment_stamp())
        for name in install.MODELS:
            paths.of(name).mkdir(parents=True)
            install._stamp(paths.of(name), install._model_stamp(name))
            tokenizer = Tokenizer(WordLevel({"?": 0}, unk_token="?"))
            tokenizer.save(str(paths.of(name) / "tokenizer.json"))
        os.mkfifo(home / "order")
        os.mkfifo(home / "taken")
        return cls(home)

    @property
    def log(self) -> Path:
        return EnginePaths(self.home).log

    def let_go(self, order: str = "serve") -> None:
        """What the process does that loads, or the next one: serve, or die. Waits until it has read that."""
        (self.home / "order").write_text(order, encoding="utf-8")
        (self.home / "taken").read_bytes()


def _rule(prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
    text = last_user_text(prompt)
    died = Path(sys.argv[1]) / "died"
    if text == DEADLY or (text == DEADLY_ONCE and not died.exists()):
        died.touch()
        os._exit(9)
    return echo(prompt, tools)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--served-model-name")
    asked, _ = parser.parse_known_args()
    home = Path(sys.argv[1])
    order = (home / "order").read_text(encoding="utf-8")
    (home / "taken").write_bytes(b"")
    if order == "die":
        sys.exit("RuntimeError: it was told to die")
    app = create_scripted_app(_rule, model=asked.served_model_name)
    uvicorn.run(app, port=asked.port, log_level="error")


if __name__ == "__main__":
    main()
