"""Jobs that post an event to an agent's inbox, once, whatever crashes on the way, and have the inbox worked.

The event's idempotency key is that of what happened; so a job that is run again finds the event that it has posted.
"""

from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from memserver.agent.conversation import Conversation
from memserver.agent.rendering import Happening
from memserver.agent.worker import Worker
from memserver.errors import NotFound
from memserver.storage import documents, timers
from memserver.storage.database import Database
from memserver.storage.jobs import JobRun


@dataclass(frozen=True, slots=True)
class EventJobs:
    database: Database
    conversation: Conversation
    worker: Worker

    async def timer(self, job: JobRun) -> None:
        """Post what a timer says that goes off; does nothing if the timer or its agent is gone."""
        timer_id = UUID(job.args["timer_id"])
        async with self.database.tenant(job.tenant) as tx:
            timer = await timers.find(tx, timer_id)
        if timer is None:
            return
        key, event = f"timer-{timer_id}", Happening("timer", timer.text)
        with suppress(NotFound):
            await self.conversation.post_event(job.tenant, timer.agent_id, event, key=key)
            async with self.database.tenant(job.tenant) as tx:
                await timers.remove(tx, timer_id)
            self.worker.ensure_serving(timer.agent_id, job.tenant)

    async def upload(self, job: JobRun) -> None:
        """Report a document by its name to an agent that searches it; does nothing if either is gone."""
        agent_id, document_id = UUID(job.args["agent_id"]), UUID(job.args["document"])
        with suppress(NotFound):
            async with self.database.tenant(job.tenant) as tx:
                document = await documents.get(tx, document_id)
            event, key = Happening("upload", document.name), f"upload-{document_id}"
            await self.conversation.post_event(job.tenant, agent_id, event, key=key)
            self.worker.ensure_serving(agent_id, job.tenant)
