"""Webhooks that hear of events: a turn has ended, an approval waits, a document is ready."""

from typing import Annotated
from uuid import UUID

from fastapi import Request
from pydantic import Field

from memserver.api.dependencies import BeginDep, ById, ServicesDep, TenantDep
from memserver.api.json_body import Router
from memserver.api.middleware.idempotency import keep_instead
from memserver.api.schemas.agents import RequestBody
from memserver.api.schemas.tools import Secret, Url
from memserver.storage import webhooks
from memserver.storage.webhooks import WebhookRow
from memserver.tools.outbound.addresses import check_url
from memserver.tools.outbound.signing import new_secret
from memserver.wire.base import Page
from memserver.wire.webhooks import EventKind, Webhook

router = Router(prefix="/webhooks", tags=["webhooks"])


class EventWebhookIn(RequestBody):
    """A new webhook."""

    url: Url = Field(
        description="Where events are posted.", examples=["https://example.org/events"]
    )
    events: Annotated[list[EventKind], Field(min_length=1, max_length=4)] = Field(
        description="Of which it hears.", examples=[["turn.ended"]]
    )
    secret: Secret | None = Field(
        default=None, repr=False, description="Signs each event; made up when left out."
    )


@router.post("", status_code=201)
async def create_webhook(
    new: EventWebhookIn, request: Request, services: ServicesDep, tenant: TenantDep
) -> Webhook:
    """Register a webhook, which from now on hears of all the tenant's events of these kinds.

    Each is a signed POST of JSON (Standard Webhooks), sent again with the same `webhook-id` until it is answered by 2xx, eight
    times within about half an hour. One that answers 410 Gone is disabled. The `secret` is in this answer only.
    """
    check_url(new.url, services.networks)
    secret = new.secret or new_secret()
    async with services.database.tenant(tenant) as tx:
        row = await webhooks.create(tx, tenant, new.url, secret, list(dict.fromkeys(new.events)))
    keep_instead(request, _shown(row).model_dump_json().encode())
    return _shown(row).model_copy(update={"secret": secret})


@router.get("")
async def list_webhooks(begin: BeginDep, listing: ById) -> Page[Webhook, UUID]:
    """List the webhooks, and how their latest deliveries went."""
    async with begin() as tx:
        found = await webhooks.list_page(tx, listing.query)
    return listing.page(Page[Webhook, UUID], [_shown(row) for row in found], lambda row: row.id)


@router.get("/{webhook_id}")
async def get_webhook(webhook_id: UUID, begin: BeginDep) -> Webhook:
    """Get one webhook."""
    async with begin() as tx:
        return _shown(await webhooks.get(tx, webhook_id))


@router.delete("/{webhook_id}", status_code=204)
async def delete_webhook(webhook_id: UUID, begin: BeginDep) -> None:
    """Delete a webhook; what is still queued for it is dropped."""
    async with begin() as tx:
        await webhooks.delete(tx, webhook_id)


def _shown(row: WebhookRow) -> Webhook:
    return Webhook.model_validate(row).model_copy(update={"secret": None})
