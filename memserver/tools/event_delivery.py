"""Reports events to webhooks, by jobs, signed by the Standard Webhooks specification."""

import asyncio
import json
from uuid import UUID

from memserver.errors import NotFound, ToolError
from memserver.storage import webhooks
from memserver.storage.database import Database
from memserver.storage.jobs import JobRun
from memserver.tools.outbound.webhooks import Delivery, WebhookGone, WebhookSender

JOB = "deliver_event"
"""Queued by the database's queue_event."""
SECONDS = 15.0
"""What a webhook may take to answer."""


async def deliver(database: Database, sender: WebhookSender, job: JobRun) -> None:
    """Deliver one event once; where it isn't taken the job fails, and is tried again with the same id.

    A webhook that is gone is disabled, and nothing that is queued for it is sent (Standard Webhooks).

    Raises:
        ToolError: the webhook can't be reached, or refuses it.
    """
    args = job.args
    webhook_id = UUID(args["webhook"])
    try:
        async with database.tenant(job.tenant) as tx:
            webhook = await webhooks.get(tx, webhook_id)
    except NotFound:  # deleted meanwhile
        return
    if webhook.disabled_at is not None:
        return
    event = {name: args[name] for name in ("type", "timestamp", "data")}
    body = json.dumps(event).encode()
    delivery = Delivery(args["id"], webhook.url, webhook.secret, body, retries=0)
    failure: ToolError | None = None
    try:
        async with asyncio.timeout(SECONDS):
            await sender.deliver(delivery)
    except TimeoutError:
        failure = ToolError(f"The webhook took longer than {SECONDS:g} s.")
    except ToolError as error:
        failure = error
    async with database.tenant(job.tenant) as tx:
        gone = isinstance(failure, WebhookGone)
        await webhooks.note(tx, webhook_id, failure.message if failure else None, gone=gone)
    if failure is not None and not gone:
        raise failure
