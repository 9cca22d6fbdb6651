"""The pictures of a prompt: their bytes are read when the model is asked, and only of messages that the prompt shows."""

from collections.abc import Sequence
from dataclasses import replace

from memserver.messages import Entry, PromptMessage
from memserver.storage import pictures
from memserver.storage.database import Database

NOT_SHOWN = "\n[system] The picture has no room in your window; you can't see it."


async def with_pictures(
    database: Database, tenant: str, queue: Sequence[PromptMessage]
) -> list[PromptMessage]:
    """The queue with the bytes of its pictures; reads nothing where there are none."""
    shown = {each.digest for message in queue for each in message.pictures}
    if not shown:
        return list(queue)
    async with database.tenant(tenant) as tx:
        data = await pictures.read(tx, shown)
    return [
        replace(
            message,
            pictures=tuple(
                replace(each, data=data[each.digest])
                for each in message.pictures
                if each.digest in data
            ),
        )
        if message.pictures
        else message
        for message in queue
    ]


def without_pictures(entry: Entry) -> Entry:
    """An entry that is too long for the window's pictures, as text."""
    tokens = max(0, entry.tokens - sum(each.tokens for each in entry.pictures))
    if entry.call is not None:
        call = replace(entry.call, result=(entry.call.result or "") + NOT_SHOWN)
        return replace(entry, pictures=(), call=call, tokens=tokens)
    return replace(entry, pictures=(), text=entry.text + NOT_SHOWN, tokens=tokens)
