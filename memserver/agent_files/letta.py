"""Letta's agent file (.af): what of it an agent here can have, and a report of the rest.

Two forms are read, as their files show them: one object for one agent, with `core_memory`; and the later one, with
lists of agents, blocks and tools that refer to each other by ids.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from memserver.agent_files.archive import validate
from memserver.agent_files.letta_messages import History, as_list, objects, read_history, time_of
from memserver.agent_files.records import (
    AgentRecord,
    EditRecord,
    PassageRecord,
    SectionRecord,
    ToolRecord,
)
from memserver.agent_files.source import Note, WholeSource
from memserver.errors import AgentFileCorrupt
from memserver.memory.attachments import MOST_SECTIONS
from memserver.memory.bounded_json import read_bounded
from memserver.messages import JsonObject

LONGEST_SECTION = 100_000
LONGEST_DESCRIPTION = 1000
LONGEST_NAME = 200
STOCK_INSTRUCTIONS = ("<base_instructions>", "You are Letta, the latest version of Limnal")
"""How the instructions begin that Letta gives its agents; they are about its own tools."""
OWN_KINDS = re.compile(r"^letta_")
RULES = {
    "run_first": "first",
    "exit_loop": "terminal",
    "required_before_exit": "required",
    "requires_approval": "approval",
}
"""Kinds of tool rules that there are here too."""
READ = frozenset(
    """
    agent_type agents block_ids blocks core_memory created_at created_by_id description embedding embedding_config
    embedding_handle files files_agents id in_context_message_ids in_context_message_indices include_base_tools
    initial_message_sequence last_updated_by_id llm_config mcp_servers memory_blocks messages metadata metadata_ model
    model_settings name passages project project_id secrets source_ids folder_ids sources system tags template
    template_id timezone tool_exec_environment_variables tool_ids tool_rules tools updated_at version
    """.split()  # noqa: SIM905
)
"""Fields that are carried, reported by themselves, or only settings of that server."""


class LettaFile(WholeSource):
    def __init__(self, file: JsonObject) -> None:
        """Read it. Raises AgentFileCorrupt: it is no such file."""
        super().__init__()
        agent = self._pick(file)
        self._read_blocks(self._blocks(agent, file))
        history = read_history(agent)
        self.notes += history.notes
        self._records["messages"] = list(history.messages)
        self._records["turns"] = list(history.turns)
        self._read_tools(agent, file)
        self._read_passages(agent, file)
        self.agent = validate(AgentRecord, self._agent(agent, history), "agents.0")
        self._note_the_rest(agent, file)

    def _note(self, kind: str, name: str, reason: str) -> None:
        self.notes.append(Note(kind, name, reason))

    def _pick(self, file: JsonObject) -> JsonObject:
        if "agents" not in file:
            return file
        agents = objects(file["agents"])
        if not agents:
            raise AgentFileCorrupt("agents: there is none.")
        for other in agents[1:]:
            self._note(
                "agent", _text(other.get("name")), "Only the first agent of a file is imported."
            )
        return agents[0]

    def _agent(self, agent: JsonObject, history: History) -> JsonObject:
        metadata = agent.get("metadata") or agent.get("metadata_") or {}
        kept = {
            "description": _text(agent.get("description")),
            "tags": as_list(agent.get("tags")),
            "agent_type": _text(agent.get("agent_type")),
        }
        name = _text(agent.get("name")) or "letta agent"
        if len(name) > LONGEST_NAME:
            self._note("name", name, f"It has {LONGEST_NAME} characters at most.")
        system = _text(agent.get("system"))
        stock = system.startswith(STOCK_INSTRUCTIONS)
        if stock:
            self._note(
                "system_prompt", "", "Letta's own; the server's instructions take its place."
            )
        elif system:
            self._note("system_prompt", "", "Carried; where it speaks of Letta's tools, change it.")
        return {
            "name": name[:LONGEST_NAME],
            "system_prompt": None if stock or not system else system,
            "options": self._options(agent),
            "metadata": {
                **(metadata if isinstance(metadata, dict) else {}),
                "letta": {name: value for name, value in kept.items() if value},
            },
            "created_at": self._time("agent", name, agent.get("created_at")),
            "state": {
                "done_turn": len(history.turns),
                "queue_start": history.queue_start,
                "stats_messages": len(history.messages),
            },
        }

    def _options(self, agent: JsonObject) -> JsonObject:
        zone = _text(agent.get("timezone"))
        try:
            return {"timezone": ZoneInfo(zone).key} if zone else {}
        except (KeyError, ValueError, OSError):
            self._note("timezone", zone, "It is no IANA time zone; UTC.")
            return {}

    def _read_blocks(self, blocks: Sequence[JsonObject]) -> None:
        names: set[str] = set()
        if not blocks:
            self._note("block", "", "The agent has no memory blocks, so it gets no section.")
        for number, block in enumerate(blocks):
            label, text = _text(block.get("label")), _text(block.get("value"))
            if number >= MOST_SECTIONS:
                self._as_passage(label, text, f"An agent has {MOST_SECTIONS} sections at most")
                continue
            name = _section_name(label, names)
            names.add(name)
            if name != label:
                self._note("block", label, f"It is the section {name!r}.")
            if len(text) > LONGEST_SECTION:
                self._as_passage(label, text, f"A section has {LONGEST_SECTION} characters at most")
                text = text[:LONGEST_SECTION]
            described = _text(block.get("description"))
            if len(described) > LONGEST_DESCRIPTION:
                self._note(
                    "block", label, f"Its description has {LONGEST_DESCRIPTION} characters at most."
                )
            limit = block.get("limit")
            wanted = limit if isinstance(limit, int) and limit > 0 else 0
            section = SectionRecord(
                name=name,
                text=text,
                limit=max(1, len(text), min(wanted, LONGEST_SECTION)),
                description=described[:LONGEST_DESCRIPTION],
                read_only=block.get("read_only") is True,
            )
            self._records["sections"].append(section)
            at = self._time("block", label, block.get("updated_at") or block.get("created_at"))
            edit = EditRecord(section=name, version=1, text=text, actor="import", created_at=at)
            self._records["edits"].append(edit)

    def _as_passage(self, label: str, text: str, reason: str) -> None:
        self._note("block", label, f"{reason}: the whole is a passage with the tag {label!r}.")
        if text:
            passage = PassageRecord(text=text, tags=[label], created_at=datetime.now(UTC))
            self._records["passages"].append(passage)

    def _read_tools(self, agent: JsonObject, file: JsonObject) -> None:
        rules = self._rules(agent)
        for tool in self._find_referred(agent, file, "tools", "tool_ids"):
            name, kind = _text(tool.get("name")), _text(tool.get("tool_type")) or "custom"
            if OWN_KINDS.match(kind):
                self._note(
                    "tool", name, "One of Letta's own; memserver's memory tools take their place."
                )
            elif not name:
                self._note("tool", name, "It has no name.")
            else:
                reason = (
                    "It is an MCP server's: register that and attach it."
                    if "mcp" in kind
                    else "Its source code isn't run here: register it as a Python function, a webhook or a "
                    "client's tool."
                )
                self._note(
                    "tool", name, f"{reason} If there is a tool of this name, the agent has it."
                )
                record = validate(
                    ToolRecord, {"name": name, **rules.get(name, {})}, f"tools: {name}"
                )
                self._records["tools"].append(record)

    def _rules(self, agent: JsonObject) -> dict[str, JsonObject]:
        found: dict[str, JsonObject] = {}
        for rule in objects(agent.get("tool_rules")):
            name, kind = _text(rule.get("tool_name")), _text(rule.get("type"))
            if kind in RULES:
                found.setdefault(name, {})[RULES[kind]] = True
            elif kind != "continue_loop":  # here every step may go on
                self._note("tool_rule", name, f"There is no rule {kind!r} here.")
        return found

    def _read_passages(self, agent: JsonObject, file: JsonObject) -> None:
        for given in (*objects(file.get("passages")), *objects(agent.get("passages"))):
            text = _text(given.get("text"))
            if not text.strip():
                self._note("passage", _text(given.get("id")), "It has no text.")
            else:
                metadata = given.get("metadata") or {}
                passage = PassageRecord(
                    text=text,
                    tags=[_text(tag) for tag in as_list(given.get("tags"))],
                    metadata=metadata if isinstance(metadata, dict) else {},
                    created_at=self._time(
                        "passage", _text(given.get("id")), given.get("created_at")
                    ),
                )
                self._records["passages"].append(passage)

    def _note_the_rest(self, agent: JsonObject, file: JsonObject) -> None:
        model = _config(agent, "llm_config", "handle", "model")
        if model:
            self._note(
                "model", model, "The server's model is used: PATCH the agent to name another."
            )
        embedder = _config(agent, "embedding_config", "handle", "embedding_model")
        if embedder:
            self._note(
                "embedding_model", embedder, "Passages are embedded by the server's embedder."
            )
        for each in self._find_referred(agent, file, "mcp_servers", ""):
            name = _text(each.get("server_name") or each.get("name"))
            self._note("mcp_server", name, "Register it with POST /v1/mcp-servers.")
        for each in (*as_list(file.get("files")), *as_list(file.get("sources"))):
            named = each if isinstance(each, dict) else {}
            name = _text(named.get("file_name") or named.get("name"))
            self._note(
                "file", name, "Files and their sources are not carried; send them as documents."
            )
        for key in ("tool_exec_environment_variables", "secrets"):
            given = agent.get(key)
            for each in given if isinstance(given, list | dict) else ():
                shown = _text(each.get("key")) if isinstance(each, dict) else _text(each)
                self._note("secret", shown, "Environment variables of tools are not carried.")
        self._note_unknown(agent, file)

    def _note_unknown(self, agent: JsonObject, file: JsonObject) -> None:
        attached = {
            str(each)
            for other in objects(file.get("agents"))
            for each in as_list(other.get("block_ids"))
        }
        for block in objects(file.get("blocks")):
            if str(block.get("id")) not in attached:
                self._note("block", _text(block.get("label")), "No agent of the file has it.")
        unknown = (file.keys() | agent.keys()) - READ
        for key in sorted(unknown):
            value = file.get(key) or agent.get(key)
            if value and isinstance(value, str | list | dict):
                self._note(key[:100], "", "There is nothing like it here.")

    def _time(self, kind: str, name: str, value: object) -> datetime:
        at = time_of(value)
        if at is None and value is not None:
            self._note(kind, name, "Its time can't be read; it gets that of the import.")
        return at or datetime.now(UTC)

    def _blocks(self, agent: JsonObject, file: JsonObject) -> list[JsonObject]:
        inline = [*objects(agent.get("core_memory")), *objects(agent.get("memory_blocks"))]
        return [*inline, *self._find_referred(agent, file, "blocks", "block_ids")]

    def _find_referred(
        self, agent: JsonObject, file: JsonObject, kind: str, ids: str
    ) -> list[JsonObject]:
        """What lies within the agent, and what of the file's lists it names by its id."""
        within = objects(agent.get(kind))
        if agent is file:
            return within
        there = objects(file.get(kind))
        if not ids:
            return [*within, *there]
        by_id = {str(each.get("id")): each for each in there}
        named = [str(each) for each in as_list(agent.get(ids))]
        for each in named:
            if each not in by_id:
                self._note(
                    kind.removesuffix("s"), each[:200], "The agent has it, but not the file."
                )
        return [*within, *(by_id[each] for each in named if each in by_id)]


def find_letta(value: object) -> JsonObject | None:
    """The file's object, if a JSON value can be such a file: some of them hold it as a string once more."""
    if isinstance(value, str):
        try:
            value = read_bounded(value.encode())
        except (ValueError, RecursionError):
            return None
    if isinstance(value, dict) and ("agents" in value or "core_memory" in value):
        return value
    return None


def _config(agent: Mapping[str, Any], key: str, *names: str) -> str:
    config = agent.get(key)
    if not isinstance(config, dict):
        return ""
    return next((config[name] for name in names if isinstance(config.get(name), str)), "")


def _section_name(label: str, taken: set[str]) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]", "_", label)[:60]
    if not re.match(r"[A-Za-z]", name):
        name = f"s_{name}"
    number, tried = 2, name
    while tried in taken:
        tried, number = f"{name}_{number}", number + 1
    return tried


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
