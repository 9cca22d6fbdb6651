"""The agent that `--agent` names: each example is asked of a copy of it."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from memserver.cli.options import server_url
from memserver.cli.running_server import connect, find_agent
from memserver.errors import InvalidInput
from memserver.messages import JsonObject


@dataclass(frozen=True, slots=True)
class Template:
    """An agent of a running server, or one in a file."""

    named: str  # its id, or the file's path
    url: str | None  # of its server; of a file that of the command, or None: one is started
    about: JsonObject  # for the run's manifest: another agent is another run


def find_template(named: str | None, url: str | None, api_key: str | None) -> Template | None:
    """The agent of this name, id or file, as it is now. Raises SetupError, NotFound or InvalidInput."""
    if named is None:
        return None
    path = Path(named)
    if path.is_file():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        return Template(str(path.absolute()), url, {"file": path.name, "hash": digest})
    url = server_url(url)
    with connect(url, api_key) as client:
        agent = find_agent(client, named)
        for section in client.working_context.get(agent.id).sections:
            if len(client.sections.readers(section.id)) > 1:
                raise InvalidInput(
                    f"{agent.name} shares the section {section.name} with other agents, which its copies would edit.",
                    hint="Export it by `memserver export`, and name the file instead.",
                )
    about = {"name": agent.name, "id": str(agent.id), "messages": agent.message_count}
    about |= {"model": agent.model} if agent.model else {}
    return Template(str(agent.id), url, about)
