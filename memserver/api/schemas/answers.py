"""What is answered where that is more than one of our own values: the rest is read from their attributes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from memserver.agent.events import End, QueuedTurn
from memserver.agent.transcript import BETWEEN
from memserver.llm.base import ChatModel
from memserver.memory.archival import ArchivalPage
from memserver.memory.recall import RecallHit, RecallPage
from memserver.memory.results import Excerpt, message_label
from memserver.messages import RESERVED, Entry
from memserver.storage import calls, inbox, sections, tools, turn_steps
from memserver.tools.tool import RunnableTool
from memserver.wire.archival import ArchivalResults, FoundPassage, Passage
from memserver.wire.messages import (
    Answer,
    ContextModel,
    FoundMessage,
    Message,
    RecallResults,
    Turn,
    Usage,
    WaitingCall,
)
from memserver.wire.sections import SectionVersion
from memserver.wire.steps import StepTimes, TurnStep, TurnSteps
from memserver.wire.tools import AgentTool, McpServer, Tool, ToolRules

_SAME = ("step", "at", "position", "model", "parts", "stop", "error")


def waiting_call(call: calls.OpenCall, expires_at: datetime) -> WaitingCall:
    record = call.record
    return WaitingCall(
        agent_id=call.agent_id,
        turn=call.turn,
        position=call.position,
        call_id=record.call.id,
        name=record.call.name,
        arguments=record.call.arguments,
        waits_for=record.waits_for,
        created_at=call.created_at,
        expires_at=expires_at,
    )


def turn_under_lens(
    turn: inbox.TurnRow, steps: Sequence[turn_steps.StepRow], *, traced: bool
) -> TurnSteps:
    def since_posted(at: datetime | None) -> float | None:
        return None if at is None else max(0.0, (at - turn.created_at).total_seconds())

    def parsed(text: str | None) -> object:
        return None if text is None else json.loads(text)

    return TurnSteps(
        turn=turn.turn,
        waited=since_posted(turn.started_at),
        took=since_posted(turn.finished_at),
        traced=traced,
        steps=[
            TurnStep(
                **{name: getattr(step, name) for name in _SAME},
                usage=Usage.model_validate(step),
                seconds=StepTimes(**{**asdict(step), "model": step.asking}),
                request=parsed(step.request),
                reply=parsed(step.reply),
            )
            for step in steps
        ],
    )


def blocking_call(end: End | None) -> WaitingCall | None:
    """The call for which a turn waits, if it does."""
    return waiting_call(end.blocked_by, end.expires_at) if isinstance(end, QueuedTurn) else None


def turn_status(turn: inbox.TurnRow, queued: QueuedTurn | None = None) -> Turn:
    changed = {"blocked_by": blocking_call(queued)}
    if not turn.ended:
        changed["stop_reason"] = None
    return Turn.model_validate(turn).model_copy(update=changed)


def answer(ended: End, messages: Sequence[Entry]) -> Answer:
    """What came of a turn that has ended, or waits."""
    said = [message.text for message in messages if message.role == "assistant" and message.text]
    return Answer(
        turn=ended.turn,
        text=BETWEEN.join(said),
        stop_reason=ended.stop_reason,
        steps=ended.steps,
        usage=ended.usage,
        messages=list(messages),
        blocked_by=blocking_call(ended),
    )


def found_message(hit: RecallHit, excerpt: Excerpt) -> FoundMessage:
    return FoundMessage(
        **dict(Message.model_validate(hit.message)),
        found_by=hit.found_by,
        score=hit.score,
        label=message_label(hit.message.position),
        excerpt=excerpt.text,
    )


def recall_results(found: RecallPage, items: list[FoundMessage]) -> RecallResults:
    return RecallResults(
        items=items,
        total=found.total,
        total_is_exact=found.exact,
        page=found.page.number,
        pages=found.page.pages(found.total),
        next=found.next,
        coverage=found.coverage,
    )


def archival_results(found: ArchivalPage, excerpts: Sequence[Excerpt]) -> ArchivalResults:
    items = [
        FoundPassage(
            **dict(Passage.model_validate(each.passage)),
            score=each.score,
            sources=each.sources,
            label=each.label,
            excerpt=excerpt.text,
            page=excerpt.page,
        )
        for each, excerpt in zip(found.found, excerpts, strict=True)
    ]
    return ArchivalResults(
        items=items,
        total=found.total,
        reachable=found.reachable,
        page=found.page.number,
        pages=found.page.pages(found.reachable),
        mode=found.mode,
    )


def context_model(model: ChatModel) -> ContextModel:
    report = model.profile
    return ContextModel(
        name=model.name,
        window_is_assumed=model.window_is_assumed,
        mode=model.mode,
        profile=report.unusual() if report else {},
        changes=[str(change) for change in report.changes] if report else [],
    )


def section_version(edit: sections.Edit) -> SectionVersion:
    position = edit.editor.position
    turn = None if position is None else position // inbox.PLACES_PER_TURN
    return SectionVersion(**{**asdict(edit), **asdict(edit.editor), "turn": turn})


def registered_tool(definition: tools.Definition, *, secret: str | None = None) -> Tool:
    """A tenant's tool; its secret only where it is given here."""
    retries = definition.retries if definition.kind == "webhook" else None
    shown = {"retries": retries, "secret": secret, "mcp_server_id": definition.server_id}
    return Tool(**{**asdict(definition), **shown})


def server_tool(tool: RunnableTool) -> Tool:
    """One of the server's own; its schema without what every tool has."""
    parameters: dict[str, Any] = tool.spec.parameters
    properties = {
        name: schema
        for name, schema in parameters.get("properties", {}).items()
        if name not in RESERVED
    }
    return Tool(
        name=tool.spec.name,
        kind=tool.kind,
        description=tool.spec.description,
        parameters={**parameters, "properties": properties},
        timeout=tool.timeout,
    )


def agent_tool(name: str, tool: RunnableTool | None, grant: tools.Grant | None) -> AgentTool:
    """From the tool, if it is there, and what the agent says of it, if anything."""
    rules = ToolRules.model_validate(grant) if grant else ToolRules()
    return AgentTool(
        **dict(rules),
        name=name,
        kind=tool.kind if tool else None,
        description=tool.spec.description if tool else "",
        available=tool is not None,
    )


def mcp_server(
    server: tools.McpServerRow,
    listed: Sequence[tools.Definition],
    refused: Mapping[str, str] | None = None,
) -> McpServer:
    names = [tool.name for tool in listed]
    return McpServer(**{**asdict(server), "tools": names, "refused": dict(refused or {})})
