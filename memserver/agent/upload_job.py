"""A document is stored: each agent that searches its collection, and wants to know, has an event in its inbox, once."""

from uuid import UUID

from memserver.agent.conversation import Conversation
from memserver.agent.rendering import Happening
from memserver.agent.worker import Worker
from memserver.errors import NotFound
from memserver.memory.documents import UPLOADED
from memserver.storage import documents
from memserver.storage.database import Database
from memserver.storage.jobs import Handler, JobRun


class UploadJob:
    """Posts the event `upload` with the document's name, and has the agent's inbox worked."""

    def __init__(self, database: Database, conversation: Conversation, worker: Worker) -> None:
        self._database = database
        self._conversation = conversation
        self._worker = worker

    @property
    def handlers(self) -> dict[str, Handler]:
        return {UPLOADED: self.run}

    async def run(self, job: JobRun) -> None:
        """Post it; does nothing if the document or the agent is gone."""
        agent_id, document_id = UUID(job.args["agent_id"]), UUID(job.args["document"])
        try:
            async with self._database.tenant(job.tenant) as tx:
                document = await documents.get(tx, document_id)
            event, key = Happening("upload", document.name), f"upload-{document_id}"
            await self._conversation.post_event(job.tenant, agent_id, event, key=key)
        except NotFound:
            return
        self._worker.ensure_serving(agent_id, job.tenant)
