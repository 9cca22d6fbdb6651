"""The options of `memserver eval`, each declared once."""

import json
import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from memserver.cli.declaring import read_pairs
from memserver.cli.options import ApiKeyOption, url_option
from memserver.errors import InvalidInput
from memserver.messages import JsonObject
from memserver.openai_http.client import EndpointClient
from memserver.openai_http.endpoint import Endpoint
from memserver.prompts import Prompts
from memserver.settings import Settings
from memserver_evals.judging.endpoint import EndpointJudge
from memserver_evals.systems.memory import Mode
from memserver_evals.task import Task
from memserver_evals.tasks.catalog import TASKS
from memserver_evals.tasks.registry import TaskOptions, find_task
from memserver_evals.wiring import SystemOptions

DataOption = Annotated[
    Path | None,
    typer.Option(
        envvar="MEMSERVER_DATA", help="The folder with the data; of the task own the file."
    ),
]
JudgeUrlOption = Annotated[str | None, typer.Option(help="An endpoint that judges (…/v1).")]
JudgeModelOption = Annotated[str | None, typer.Option(help="Its model.")]
JudgeKeyOption = Annotated[str | None, typer.Option(envvar="MEMSERVER_JUDGE_API_KEY")]


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """The model that judges besides the string judge, if one is named."""

    url: str | None = None
    model: str | None = None
    key: str | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[EndpointJudge | None]:
        """The judge while the block runs. Raises InvalidInput where it has no model, or no address."""
        if (self.url is None) != (self.model is None):
            raise InvalidInput("--judge-url and --judge-model go together.")
        if self.url is None or self.model is None:
            yield None
            return
        client = EndpointClient(Endpoint(self.url, self.key or "", title="judge's endpoint"))
        try:
            yield EndpointJudge(client, self.model, Prompts(Settings().prompts_dir))
        finally:
            await client.aclose()


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the command line says of a run: each field is an option of every task's command."""

    system: Annotated[list[str] | None, typer.Option()] = None
    limit: Annotated[int | None, typer.Option(min=1, help="A fixed sample of so many.")] = None
    seed: Annotated[int, typer.Option(help="Of the sample and of all chance.")] = 0
    data: DataOption = None
    set_: Annotated[list[str] | None, typer.Option("--set")] = None
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; one that is there is resumed.")
    ] = None
    url: Annotated[str | None, url_option("A memserver to evaluate; left out: one is started.")] = (
        None
    )
    api_key: ApiKeyOption = None
    database_url: Annotated[
        str | None,
        typer.Option(
            envvar="MEMSERVER_EVALUATION_DATABASE_URL",
            help="A Postgres for the memserver that is started; left out: one of its own.",
        ),
    ] = None
    at_once: Annotated[int, typer.Option(min=1, help="Examples played at a time.")] = 4
    engine: Annotated[Literal["local", "ray"], typer.Option(help="local, or a Ray cluster.")] = (
        "local"
    )
    workers: Annotated[int, typer.Option(min=1, help="Of a Ray cluster.")] = 2
    mode: Annotated[
        Mode, typer.Option(help="memserver gets the sessions (import) or takes part in them (act).")
    ] = "import"
    reply_mode: Annotated[
        Literal["tools", "chat"],
        typer.Option(help="memserver's agents act by calls of tools, or are asked in plain chat."),
    ] = "tools"
    model: Annotated[
        str | None,
        typer.Option(help="Of memserver's agents, such as an adapter; left out: the server's."),
    ] = None
    agent: Annotated[
        list[str] | None,
        typer.Option(
            help="An agent of yours, by name, id or agent file, of which each example gets a copy; "
            "and options of memserver's agents: key=value; repeatable."
        ),
    ] = None
    context_window: Annotated[
        int | None, typer.Option(min=512, help="Tokens that every system but full may use.")
    ] = None
    full_window: Annotated[
        int | None, typer.Option(min=512, help="Tokens that the system full may use.")
    ] = None
    max_tokens: Annotated[int, typer.Option(min=16, help="Of an answer without memserver.")] = 256
    summary_tokens: Annotated[int, typer.Option(min=64, help="Of a system's summary.")] = 512
    top_k: Annotated[int, typer.Option(min=1, help="Texts of the system retrieval.")] = 10
    speak: Annotated[
        Literal["auto", "text", "call"],
        typer.Option(help="Without memserver the model writes text or calls send_message."),
    ] = "auto"
    temperature: Annotated[float, typer.Option(min=0, help="Of the model.")] = 0
    judge_url: JudgeUrlOption = None
    judge_model: JudgeModelOption = None
    judge_key: JudgeKeyOption = None

    @property
    def judge(self) -> JudgeOptions:
        return JudgeOptions(self.judge_url, self.judge_model, self.judge_key)

    def command(self, task: str, systems: Sequence[str]) -> str:
        """The command that runs the same, as a shell takes it; without secrets."""
        words = ["memserver", "eval", task, *(f"--system={name}" for name in systems)]
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name not in _NOT_SHOWN and value not in (one.default, None):
                option = f"--{one.name.strip('_').replace('_', '-')}"
                words += [
                    f"{option}={each}" for each in (value if isinstance(value, list) else [value])
                ]
        return shlex.join(words)

    def for_task(self) -> TaskOptions:
        return TaskOptions(self.data, self.seed, read_pairs("--set", self.set_ or ()))

    def for_systems(self) -> SystemOptions:
        """Without how they speak, which depends on the model."""
        return SystemOptions(
            mode=self.mode,
            agent=self._agent(),
            context_window=self.context_window,
            full_window=self.full_window,
            max_tokens=self.max_tokens,
            summary_tokens=self.summary_tokens,
            top_k=self.top_k,
            agent_model=self.model,
        )

    @property
    def named_agent(self) -> str | None:
        """The agent that is evaluated: its name, id, or file. Raises InvalidInput: there are two."""
        named = [each for each in self.agent or () if "=" not in each or Path(each).is_file()]
        if len(named) > 1:
            raise InvalidInput(f"--agent names two agents: {named[0]} and {named[1]}.")
        return named[0] if named else None

    def _agent(self) -> JsonObject:
        """Values are JSON where they can be, so that 256 and true are what they look like."""
        options: JsonObject = {"reply_mode": "chat"} if self.reply_mode == "chat" else {}
        given = [each for each in self.agent or () if each != self.named_agent]
        for name, value in read_pairs("--agent", given).items():
            try:
                options[name] = json.loads(value)
            except ValueError:
                options[name] = value
        return options


_NOT_SHOWN = {"system", "api_key", "judge_key", "database_url"}


def task_of_run(manifest: JsonObject, data: Path | None) -> Task[Any]:
    options = TaskOptions(data, int(manifest["seed"]), dict(manifest["task_options"]))
    return find_task(TASKS, str(manifest["task"])).make(options)
