"""The commands `migrate` and `reembed`."""

import asyncio
from typing import Annotated

import typer
from rich.progress import Progress

from memserver.cli.console import console
from memserver.cli.keys import ensure_admin_key
from memserver.cli.options import read_settings
from memserver.settings import Settings
from memserver.storage.migrate import newest_revision
from memserver.wiring.database import database_urls
from memserver.wiring.services import check_settings, upkeep_alone


def migrate() -> None:
    """Bring the database to the newest schema."""
    settings = read_settings()
    with database_urls(settings) as urls:
        ensure_admin_key(urls.app, settings)
        console.print(f"The database is at {newest_revision()}.")


def reembed(
    background: Annotated[
        bool, typer.Option(help="Queue it as jobs of the processes that serve, and return.")
    ] = False,
) -> None:
    """Give collections vectors of the embedding model that is set now.

    The old ones serve meanwhile.
    Interrupted, it resumes where it was.
    """
    settings = read_settings()
    check_settings(settings)
    with database_urls(settings) as urls:
        asyncio.run(_reembed(settings, urls.app, background=background))


async def _reembed(settings: Settings, app_url: str, *, background: bool) -> None:
    async with upkeep_alone(settings, app_url) as (upkeep, embedder):
        outdated = await upkeep.outdated(embedder)
        what = f"{len(outdated)} collections to be re-embedded with {embedder.model}."
        if background or not outdated:
            await upkeep.queue(outdated, embedder.model)
            console.print(f"Queued: {what}" if outdated else "All collections are of that model.")
            return
        console.print(what)
        with Progress(console=console, transient=True) as bar:
            total = sum(each.passage_count for each in outdated)
            task = bar.add_task("re-embedding", total=total)
            done = 0
            for each in outdated:
                async for at in upkeep.reembed(each, embedder):
                    bar.update(task, completed=done + at.stored, description=at.state)
                done += each.passage_count
        console.print(f"Done: {len(outdated)} collections, {total} passages.")
