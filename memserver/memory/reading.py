"""Reading on: one message or passage whole, by the label that results show, in pieces that a reader has room for."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from uuid import UUID

from memserver.errors import InvalidInput, NotFound
from memserver.llm.control_tokens import escape_control_tokens
from memserver.memory.excerpt import cut_after
from memserver.memory.results import (
    CAREFUL,
    DENSEST,
    MOST_CHARACTERS,
    READ_TOOL,
    ResultReader,
    message_label,
    message_result,
    passage_label,
    passage_result,
    shrink,
)
from memserver.messages import Entry, StoredPassage
from memserver.storage import collections, passages, recall
from memserver.storage.collections import CollectionRow
from memserver.storage.database import Transaction
from memserver.storage.rows import PageQuery

_LABEL = re.compile(r"\[?\s*([mp])(\d{1,18})(?:@(.+?))?\s*\]?", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class LabelledItem:
    """A message or passage with the labels of those before and after it, where there are such."""

    label: str
    item: Entry | StoredPassage
    before: str | None  # the label of the one before
    after: str | None  # the label of the one after

    @property
    def text(self) -> str:
        """All of it: of a message that was a call of a tool, the call and its result."""
        record = None if isinstance(self.item, StoredPassage) else self.item.call
        if record is None or self.item.text:
            return self.item.text
        arguments = json.dumps(dict(record.call.arguments), ensure_ascii=False)
        return f"{record.call.name} {arguments}\n{record.result or ''}".rstrip()

    async def describe(self, start: int, zone: tzinfo, reader: ResultReader) -> str:
        """As much as a reader has room for, from a character on, and how to read on."""
        text = self.text
        if not 1 <= start <= max(1, len(text)):
            raise InvalidInput(f"start: {self.label} has the characters 1 to {len(text)}.")
        at = start - 1
        limit = await reader.limit()
        end = min(len(text), at + min(limit * DENSEST, MOST_CHARACTERS))
        for careful in CAREFUL:
            end = cut_after(text, at, end)
            head, tail = self._head(at, zone, reader), self._tail(at, end)
            around, tokens = await reader.count([head + tail, text[at:end]])
            if around + tokens <= limit:
                return head + text[at:end] + tail
            end = at + shrink(end - at, tokens, limit - around, careful)
        end = cut_after(text, at, end)
        return self._head(at, zone, reader) + text[at:end] + self._tail(at, end)

    def _head(self, at: int, zone: tzinfo, reader: ResultReader) -> str:
        if isinstance(self.item, StoredPassage):
            result = passage_result(self.item, self.label, zone)
            return result.head(result.origin.page_at(at), reader)
        return message_result(self.item, zone).head(None, reader)

    def _tail(self, at: int, end: int) -> str:
        whole = len(self.text)
        parts = []
        if at > 0 or end < whole:
            parts.append(f"Characters {at + 1} to {end} of {whole}.")
        if end < whole:
            parts.append(f"Next: {READ_TOOL} {self.label}, start {end + 1}.")
        parts += [
            f"{side}: {label}."
            for side, label in (("Before it", self.before), ("After it", self.after))
            if label
        ]
        return f"\n({' '.join(parts)})" if parts else ""


async def find(
    tx: Transaction, agent_id: UUID, label: str, *, until: int | None = None
) -> LabelledItem:
    """What an agent's label names, before the position `until`. Raises InvalidInput: it is no label."""
    parts = _LABEL.fullmatch(label.strip())
    if parts is None:
        raise InvalidInput(
            f"{label!r} is no label. Take one as search results show it, such as m12003 or p17."
        )
    kind, number, place = parts[1].lower(), int(parts[2]), parts[3]
    if kind == "m" and place is None:
        return await _message(tx, agent_id, number, until)
    searched = await collections.readable_by(tx, agent_id)
    return await _passage(tx, _collection(searched, label, place), number, searched)


async def message_at(tx: Transaction, agent_id: UUID, position: int) -> Entry:
    found = await recall.history_page(tx, agent_id, PageQuery(1, position - 1))
    if not found or found[0].position != position:
        raise NotFound(f"There is no message {message_label(position)}.")
    return found[0]


async def _message(
    tx: Transaction, agent_id: UUID, position: int, until: int | None
) -> LabelledItem:
    label = message_label(position)
    if until is not None and position >= until:
        raise NotFound(f"There is no message {label} yet.")
    message = await message_at(tx, agent_id, position)
    before = await recall.history_page(tx, agent_id, PageQuery(1, position, descending=True))
    after = await recall.history_page(tx, agent_id, PageQuery(1, position))
    after = [each for each in after if until is None or each.position < until]
    labels = [message_label(each[0].position) if each else None for each in (before, after)]
    return LabelledItem(label, message, labels[0], labels[1])


async def _passage(
    tx: Transaction, place: CollectionRow, number: int, searched: Sequence[CollectionRow]
) -> LabelledItem:
    found = await passages.get_with_neighbours(tx, place.id, number)
    name = None if place is searched[0] else place.name
    label = passage_label(number, name)
    here = next((each for each in found if each.number == number), None)
    if here is None:
        raise NotFound(f"There is no passage {label}.")
    labels = {each.number: passage_label(each.number, name) for each in found}
    before = next((labels[each] for each in labels if each < number), None)
    after = next((labels[each] for each in labels if each > number), None)
    return LabelledItem(label, here, before, after)


def _collection(searched: Sequence[CollectionRow], label: str, name: str | None) -> CollectionRow:
    """The collection of this name as a model reads it; without one, the agent's own."""
    if name is None:
        return searched[0]
    for collection in searched[1:]:
        if escape_control_tokens(collection.name) == escape_control_tokens(name):
            return collection
    raise NotFound(f"There is no passage {label}: no collection {name!r} is attached.")
