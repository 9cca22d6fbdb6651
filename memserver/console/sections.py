"""Sections of a working context: edited, with their history, its differences, and undo."""

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from fastapi.responses import Response

from memserver.client.models import SectionVersion
from memserver.console.routing import PageRouter
from memserver.console.visit import Visit, VisitDep

router = PageRouter()
VERSIONS = 10
LONGEST_COMPARED = 20_000
_WORDS = re.compile(r"\s+|\S+")


@dataclass(frozen=True, slots=True)
class Difference:
    """A piece of a text beside the version before it: `kept`, `added` or `removed`."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ShownVersion:
    """A version of a section, and how it differs from the one before; None: that isn't shown."""

    version: SectionVersion
    differences: list[Difference] | None


def differences(before: str, after: str) -> Iterator[Difference]:
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            yield Difference("kept", "".join(old[i1:i2]))
            continue
        if i1 < i2:
            yield Difference("removed", "".join(old[i1:i2]))
        if j1 < j2:
            yield Difference("added", "".join(new[j1:j2]))


def compared(newest_first: list[SectionVersion]) -> list[ShownVersion]:
    """Each version beside the one before it; the last has none."""
    shown = []
    for version, before in zip(newest_first, [*newest_first[1:], None], strict=True):
        short = before and len(before.text) + len(version.text) <= LONGEST_COMPARED
        found = list(differences(before.text, version.text)) if before and short else None
        shown.append(ShownVersion(version, found))
    return shown


@router.get("/agents/{agent}/sections/{section}")
async def show_section(visit: VisitDep, agent: UUID, section: str) -> Response:
    return await _shown(visit, agent, section)


@router.get("/agents/{agent}/sections/{section}/edit")
async def edit_section(visit: VisitDep, agent: UUID, section: str) -> Response:
    found = await visit.api.working_context.section(agent, section)
    return visit.page("section_edit.html", agent_id=agent, section=found)


@router.post("/agents/{agent}/sections/{section}/edit")
async def save_section(visit: VisitDep, agent: UUID, section: str) -> Response:
    """Save a text, unless the agent has written meanwhile: then say so, and keep what was typed."""
    form = await visit.form()
    text = str(form.get("text", "")).replace("\r\n", "\n")
    version = int(str(form["version"]))
    await visit.api.working_context.edit(agent, section, text=text, expected_version=version)
    return await _shown(visit, agent, section, changed=True)


@router.get("/agents/{agent}/sections/{section}/history")
async def show_history(
    visit: VisitDep, agent: UUID, section: str, after: int | None = None
) -> Response:
    page = await visit.api.working_context.history(agent, section, after=after, limit=VERSIONS + 1)
    versions = compared(list(page.items))[: VERSIONS if page.next or len(page) > VERSIONS else None]
    more = versions[-1].version.version if len(page) > VERSIONS else None
    return visit.page(
        "section_history.html", agent_id=agent, name=section, versions=versions, more=more
    )


@router.post("/agents/{agent}/sections/{section}/undo")
async def undo_edit(visit: VisitDep, agent: UUID, section: str) -> Response:
    form = await visit.form()
    version = int(str(form["version"]))
    await visit.api.working_context.undo(agent, section, expected_version=version)
    return await _shown(visit, agent, section, changed=True)


@router.post("/agents/{agent}/sections/{section}/restore")
async def restore_version(visit: VisitDep, agent: UUID, section: str) -> Response:
    form = await visit.form()
    await visit.api.working_context.restore(agent, section, int(str(form["version"])))
    return await _shown(visit, agent, section, changed=True)


async def _shown(visit: Visit, agent: UUID, section: str, *, changed: bool = False) -> Response:
    found = await visit.api.working_context.section(agent, section)
    response = visit.page("section.html", agent_id=agent, section=found)
    if changed:  # the bar follows
        response.headers["HX-Trigger"] = "memory-changed"
    return response
