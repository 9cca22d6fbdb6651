"""Answering from notes: the one that holds the answer, among others and in other words than the question's.

Where none holds it, the right thing is to search.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

from memserver.llm.wire import call_as_json
from memserver.memory.working_context import default_sections
from memserver.messages import FunctionCall
from memserver.prompts import Prompts
from sweet_rl.warm_start.chains import Chain, Lesson
from sweet_rl.warm_start.corpus import CorpusQuestion, Turn, Written
from sweet_rl.warm_start.reading import LONGEST_QUERY, noted
from sweet_rl.warm_start.small_talk import SmallTalk

KIND = "noted"
MISSING = 0.15
"""Of the lessons lack the note that holds the answer."""
FEWEST, MOST = 2, 10
"""Other notes in sight."""
TALKED = 5
"""Exchanges of small talk at most since the notes were taken."""


def lessons_from_notes(
    talk: Written, chat: Sequence[SmallTalk], random: Random, prompts: Prompts, *, each: int
) -> Iterable[Chain]:
    """Lessons of a conversation's facts and updates, and of what was never said."""
    notes = last_notes(talk.turns)
    later = talk.sessions[-1].replace(tzinfo=UTC) + timedelta(days=random.randint(3, 90))
    for question in talk.questions:
        if question.kind not in {"fact", "update", "unanswerable"}:
            continue
        known = next((note for note in notes if _holds(note, talk, question)), "")
        if not known and _by_the_user(talk, question):
            continue  # a note may say it in other words, or that it has changed
        for _ in range(each):
            held = "" if random.random() < MISSING else known
            shown = _shown(notes, held, question, random)
            messages = [
                {"role": "system", "content": _head(shown, random, prompts)},
                *_small_talk(chat, later, random),
                {"role": "user", "content": f"[{later:%Y-%m-%d %H:%M}] {question.text}"},
            ]
            yield _chain(messages, held, question)


def last_notes(turns: Sequence[Turn]) -> list[str]:
    """The notes that hold at the end of a conversation, in their order: what was changed is changed."""
    found: list[str] = []
    for note in (note for turn in turns for note in turn.notes):
        old, changed, new = note.rpartition(" -> ")
        if changed and old in found:
            found[found.index(old)] = new
        else:
            found.append(new)
    return found


def _holds(note: str, talk: Written, question: CorpusQuestion) -> bool:
    place = talk.place(question)
    if place is None or question.answer.lower() not in note.lower():
        return False
    return note in [each.rpartition(" -> ")[2] for each in talk.turns[place].notes]


def _by_the_user(talk: Written, question: CorpusQuestion) -> bool:
    place = talk.place(question)
    return place is not None and talk.turns[place].speaker == "user"


def _shown(notes: Sequence[str], held: str, question: CorpusQuestion, random: Random) -> list[str]:
    others = [
        note for note in notes if note != held and question.answer.lower() not in note.lower()
    ]
    chosen = random.sample(others, min(len(others), random.randint(FEWEST, MOST)))
    return [note for note in notes if note == held or note in chosen]


def _head(shown: Sequence[str], random: Random, prompts: Prompts) -> str:
    persona, human = default_sections()
    context = prompts.render(
        "working_context.md",
        sections=(persona, replace(human, text="\n".join(shown))),
        messages=random.randint(20, 400),
        passages=0,
        edited_at="2026-01-01 09:00",
    )
    return f"{prompts.render('system.md')}\n\n{context}"


def _small_talk(
    chat: Sequence[SmallTalk], until: datetime, random: Random
) -> Iterator[dict[str, str]]:
    count = random.randint(0, TALKED)
    for left, talk in zip(range(count, 0, -1), random.choices(chat, k=count), strict=True):
        at = until - timedelta(minutes=4 * left)
        yield {"role": "user", "content": f"[{at:%Y-%m-%d %H:%M}] {talk.text}"}
        yield {"role": "assistant", "content": talk.reply}


def _chain(messages: list[dict[str, str]], held: str, question: CorpusQuestion) -> Chain:
    if held:
        call = FunctionCall("", "send_message", {"message": noted(question, held)})
    else:
        query = {"query": question.text[:LONGEST_QUERY], "request_heartbeat": True}
        call = FunctionCall("", "recall_memory_search", query)
    said = {"role": "assistant", "content": call_as_json(call)}
    goal = question.answer if held else ""
    return Chain((*messages, said), (Lesson(len(messages), KIND, goal),))
