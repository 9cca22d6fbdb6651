"""A timer goes off: its text becomes an event in the agent's inbox, once, whatever crashes on the way.

The event's idempotency key is the timer's; so a job that is run again finds the event that it has posted.
"""

from uuid import UUID

from memserver.agent.conversation import Conversation
from memserver.agent.rendering import Happening
from memserver.agent.worker import Worker
from memserver.errors import NotFound
from memserver.memory.timers import JOB
from memserver.storage import timers
from memserver.storage.database import Database
from memserver.storage.jobs import Handler, JobRun


class TimerJob:
    """Posts what is due, and has the agent's inbox worked."""

    def __init__(self, database: Database, conversation: Conversation, worker: Worker) -> None:
        self._database = database
        self._conversation = conversation
        self._worker = worker

    @property
    def handlers(self) -> dict[str, Handler]:
        return {JOB: self.run}

    async def run(self, job: JobRun) -> None:
        """Post one timer's event; does nothing if the timer or its agent is gone."""
        timer_id = UUID(job.args["timer_id"])
        async with self._database.tenant(job.tenant) as tx:
            timer = await timers.find(tx, timer_id)
        if timer is None:
            return
        key = f"timer-{timer_id}"
        try:
            event = Happening("timer", timer.text)
            await self._conversation.post_event(job.tenant, timer.agent_id, event, key=key)
        except NotFound:
            return
        async with self._database.tenant(job.tenant) as tx:
            await timers.remove(tx, timer_id)
        self._worker.ensure_serving(timer.agent_id, job.tenant)
