"""Event webhooks. What they hear of is queued by triggers of the database."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from memserver.errors import Conflict, NotFound
from memserver.storage.database import Transaction
from memserver.storage.rows import PageQuery, Table, columns_of, fetch_value, paginate
from memserver.wire.webhooks import EventKind

MOST = 20
"""Of a tenant."""


@dataclass(frozen=True, slots=True)
class WebhookRow:
    id: UUID
    url: str
    secret: str = field(repr=False)
    events: Sequence[EventKind]
    delivered_at: datetime | None
    error: str | None
    disabled_at: datetime | None
    created_at: datetime


def no_webhook(webhook_id: UUID) -> NotFound:
    return NotFound(f"There is no webhook {webhook_id}.", hint="GET /v1/webhooks lists yours.")


_TABLE = Table(WebhookRow, "webhooks", columns_of(WebhookRow), no_webhook)
get, delete = _TABLE.get, _TABLE.delete


async def create(
    tx: Transaction, tenant: str, url: str, secret: str, events: Sequence[EventKind]
) -> WebhookRow:
    """Raises Conflict: there are as many as there may be."""
    if await fetch_value(tx, "SELECT count(*) FROM webhooks") >= MOST:
        raise Conflict(f"There are {MOST} webhooks already.", hint="Delete one of them.")
    return await _TABLE.insert(tx, tenant, {"url": url, "secret": secret, "events": [*events]})


async def list_page(tx: Transaction, page: PageQuery) -> list[WebhookRow]:
    query = f"SELECT {columns_of(WebhookRow)} FROM webhooks WHERE true"
    return await paginate(tx, WebhookRow, page, query, {}, by="id")


async def note(tx: Transaction, webhook_id: UUID, error: str | None, *, gone: bool = False) -> None:
    """Note that it took an event, or why it didn't; one that is gone is disabled."""
    await tx.execute(
        """UPDATE webhooks SET error = %(error)s,
               delivered_at = CASE WHEN %(error)s::text IS NULL THEN now() ELSE delivered_at END,
               disabled_at = CASE WHEN %(gone)s THEN coalesce(disabled_at, now()) ELSE disabled_at END
           WHERE id = %(id)s""",
        {"id": webhook_id, "error": error, "gone": gone},
    )
