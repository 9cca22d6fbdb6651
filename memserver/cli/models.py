"""The commands `memserver models`: the endpoint's models, and adapters on them."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from memserver.cli.console import console, print_json, print_table
from memserver.cli.options import JsonOption
from memserver.errors import DatabaseError, ModelUnavailable, SetupError
from memserver.llm.adapters import Adapters, find_adapter, trained_elsewhere, versioned_name
from memserver.local.engine.address import read_address
from memserver.local.engine.paths import EnginePaths
from memserver.settings import Settings
from memserver.storage.inspect import agents_naming
from memserver.wiring.database import reachable_database
from memserver.wiring.providers import model_endpoint

T = TypeVar("T")

models = typer.Typer(no_args_is_help=True, help="The endpoint's models, and adapters on them.")
MOST_AGENTS_SHOWN = 20
_LOADING, _PAUSE = 300.0, 0.5
"""Seconds that a local model may take to load, and between looks at it."""


@models.command("list")
def models_list(as_json: JsonOption = False) -> None:
    """List the models and adapters that the endpoint has."""
    found = asyncio.run(_with_adapters(lambda adapters: adapters.listed()))
    if as_json:
        print_json([asdict(each) for each in found])
        return
    rows = [
        (each.name, each.kind, each.base or "", str(each.window or ""), each.path or "")
        for each in found
    ]
    print_table(
        ("name", "kind", "base", "window", "path"), rows, empty="The endpoint lists no models."
    )


@models.command("load", hidden=True)
@models.command("add")
def models_add(
    name: Annotated[str, typer.Argument(help="The adapter's name; its version is added.")],
    path: Annotated[str, typer.Argument(help="Its folder, as the endpoint's machine sees it.")],
    version: Annotated[
        str | None, typer.Option(help="Instead of a hash of the folder's content.")
    ] = None,
) -> None:
    """Add a LoRA adapter to those that vLLM serves, under a name of its own; print it for agents to take."""
    folder = find_adapter(path)
    full_name = versioned_name(name, folder, version)
    seen_there = path if folder is None else str(Path(path).absolute())

    async def load(adapters: Adapters) -> tuple[bool, str]:
        note = trained_elsewhere(folder, await adapters.listed()) if folder else ""
        return await adapters.load(full_name, seen_there), note

    newly, note = asyncio.run(_with_adapters(load))
    for line in filter(None, [note, "" if newly else "It was loaded already."]):
        print(line, file=sys.stderr)
    print(full_name)


@models.command("unload")
def models_unload(
    name: Annotated[str, typer.Argument(help="As the list has it, with its version.")],
) -> None:
    """Unload an adapter from vLLM; agents that still name it are listed."""
    asyncio.run(_with_adapters(lambda adapters: adapters.unload(name)))
    naming = _agents_naming(Settings(), name)
    if naming is None:
        print("Which agents name it is not known: no database can be reached.", file=sys.stderr)
    elif naming:
        shown = ", ".join(naming[:MOST_AGENTS_SHOWN])
        more = ", …" if len(naming) > MOST_AGENTS_SHOWN else ""
        print(
            f"{len(naming)} agents still name it and can't answer: {shown}{more}", file=sys.stderr
        )
    console.print(f"Unloaded {name}.")


async def _with_adapters(work: Callable[[Adapters], Awaitable[T]]) -> T:
    settings = Settings()
    file = EnginePaths(settings.home).address
    url = settings.llm_base_url or read_address(file)
    if url is None:
        raise SetupError(
            "No endpoint is set whose models these are, and no local engine runs.",
            hint="Set MEMSERVER_LLM_BASE_URL to your vLLM's, or start `memserver serve` first, with "
            "MEMSERVER_LOCAL_ADAPTERS=true.",
        )
    adapters = Adapters(model_endpoint(settings.model_copy(update={"llm_base_url": url})))
    try:
        if settings.llm_base_url is None:
            await _until_ready(adapters, file)
        return await work(adapters)
    finally:
        await adapters.aclose()


async def _until_ready(adapters: Adapters, file: Path) -> None:
    """Wait for the local engine of a server that has only just been started."""
    end, reported = time.monotonic() + _LOADING, False
    while True:
        try:
            await adapters.listed()
        except ModelUnavailable:
            if read_address(file) is None or time.monotonic() > end:
                raise
        else:
            return
        if not reported:
            print("The local model is still loading: waiting for it.", file=sys.stderr)
            reported = True
        await asyncio.sleep(_PAUSE)


def _agents_naming(settings: Settings, model: str) -> list[str] | None:
    """The agents that name a model; None where there is no database, which is not made for that."""
    if settings.database_url is None and not (settings.home / "postgres").exists():
        return None
    try:
        with reachable_database(settings) as urls:
            return agents_naming(urls.owner, model)
    except (SetupError, DatabaseError):
        return None
