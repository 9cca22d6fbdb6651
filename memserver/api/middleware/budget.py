"""The token budget of an API key."""

import re

from memserver.agent.budget import exceeded
from memserver.storage import usage
from memserver.storage.api_keys import KnownKey
from memserver.storage.inbox import spending_key
from memserver.wiring.services import Services

_BEGINS_TURNS = re.compile(r"/v1/(?:chat/completions|responses|agents/[^/]+/(?:messages|events))")


async def charge(services: Services, key: KnownKey, method: str, path: str) -> None:
    """Have the turns that a request posts be on its key's budget, if it has one.

    Raises:
        TokenBudgetExceeded: it is used up, and the request would begin a turn.
    """
    spending_key.set(None if key.daily_tokens is None else key.id)
    if key.daily_tokens is None or method != "POST" or not _BEGINS_TURNS.fullmatch(path):
        return
    async with services.database.tenant(key.tenant) as tx:
        used = await usage.of_key_today(tx, key.id)
    if used >= key.daily_tokens:
        raise exceeded("The API key", used, key.daily_tokens, services.deps.clock())
