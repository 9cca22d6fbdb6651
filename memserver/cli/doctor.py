"""The command `doctor`."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import typer

from memserver.cli.console import console, print_table
from memserver.cli.examination import Finding, examine_database, examine_embedder, examine_model
from memserver.cli.local_engine import ENGINE_START_SECONDS, local_engine
from memserver.cli.options import read_settings
from memserver.errors import DatabaseError, ModelError, SetupError
from memserver.settings import Settings
from memserver.wiring.database import reachable_database
from memserver.wiring.providers import Models, make_embedder


def doctor() -> None:
    """Find out what is wrong, and how to fix it.

    Database, embedder and model are asked for real; nothing is changed.
    """
    settings = read_settings()
    findings = list(_examine(settings))
    rows = [
        (
            f"{'✓' if each.well else '✗'} {each.name}",
            each.detail,
            "" if each.well else each.remedy,
        )
        for each in findings
    ]
    print_table(("what", "found", "what to do"), rows, sentences=("found", "what to do"))
    wrong = sum(not each.well for each in findings)
    console.print("All is well." if not wrong else f"{wrong} of {len(findings)} need fixing.")
    if wrong:
        raise typer.Exit(1)


def _examine(settings: Settings) -> Iterator[Finding]:
    try:
        with reachable_database(settings) as urls:
            yield from examine_database(urls.owner, urls.app, settings.database_prepared_statements)
    except (SetupError, DatabaseError) as error:
        yield Finding("database", False, str(error), error.hint)
    yield from asyncio.run(_examine_models(settings))


async def _examine_models(settings: Settings) -> list[Finding]:
    try:
        embedder = make_embedder(settings)
    except SetupError as error:
        findings = [Finding("embedder", False, error.message, error.hint)]
    else:
        findings = [await examine_embedder(embedder)]
        await embedder.aclose()
    with ExitStack() as stack:
        try:
            if settings.llm_base_url is None:
                local, settings = stack.enter_context(local_engine(settings))
                console.print("Starting the local engine …")
                await local.wait_until_ready(within=ENGINE_START_SECONDS)
            models = Models(settings)
        except (SetupError, ModelError) as error:
            return [*findings, Finding("model", False, error.message, error.hint)]
        findings += [finding async for finding in examine_model(models.get(None))]
        await models.aclose()
    return findings
