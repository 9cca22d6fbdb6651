"""Pictures of a request: read, and refused where the agent's model is known to take none."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from memserver.errors import PictureRefused
from memserver.memory.pictures import PictureLimits, check_count, from_url
from memserver.messages import Picture
from memserver.wiring.services import Services


class PictureUrl(NamedTuple):
    """A picture as a request has it: a data: URL, what the sender calls it, and where it stands."""

    url: str
    name: str = ""
    place: str = "pictures"


async def read_pictures(
    services: Services, tenant: str, model: str | None, urls: Sequence[PictureUrl]
) -> tuple[Picture, ...]:
    """The pictures of a message to an agent with this model. Raises PictureRefused."""
    if not urls:
        return ()
    check_count(urls)
    if not services.deps.models.get(model, tenant).takes_pictures:
        raise PictureRefused(
            f"{urls[0].place}: the agent's model takes no pictures.",
            hint="Describe it in words, or give the agent another model; /v1/agents/{agent}/context shows its profile.",
        )
    return await asyncio.to_thread(_read, urls, services.pictures)


def _read(urls: Sequence[PictureUrl], limits: PictureLimits) -> tuple[Picture, ...]:
    return tuple(_read_one(each, limits) for each in urls)


def _read_one(given: PictureUrl, limits: PictureLimits) -> Picture:
    try:
        return from_url(given.url, limits, given.name)
    except PictureRefused as error:
        raise PictureRefused(f"{given.place}: {error.message}", hint=error.hint) from error
