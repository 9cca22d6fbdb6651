"""Webhooks that hear of events."""

from collections.abc import Sequence
from typing import Unpack
from uuid import UUID

from memserver.client.methods import Resource, TransportT, items, method
from memserver.client.models import EventKind, Page, Webhook
from memserver.client.requests import Id, Paged, Request, delete, get, given, post

_WEBHOOK = "/webhooks/{webhook_id}"


class Webhooks(Resource[TransportT]):
    """Webhooks that hear of events."""

    @method
    def create(
        self, url: str, events: Sequence[EventKind], *, secret: str | None = None
    ) -> Request[Webhook]:
        """Register a webhook. The answer alone has its secret.

        Args:
            url: where events are posted.
            events: of which it hears.
            secret: signs each event; left out: made up.
        """
        return post("/webhooks", Webhook, given(url=url, events=[*events], secret=secret))

    @method
    def list(self, **page: Unpack[Paged[Id]]) -> Request[Page[Webhook, UUID]]:
        """List the webhooks, and how their latest deliveries went."""
        return get("/webhooks", Page[Webhook, UUID], page)

    all = items(list.build)

    @method
    def get(self, webhook: Id) -> Request[Webhook]:
        """Get one webhook."""
        return get(_WEBHOOK, Webhook, webhook_id=webhook)

    @method
    def delete(self, webhook: Id) -> Request[None]:
        """Delete a webhook; what is still queued for it is dropped."""
        return delete(_WEBHOOK, webhook_id=webhook)
