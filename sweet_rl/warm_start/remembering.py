"""What the teacher does with people of the corpus: note, search, read, quote, follow, and say so when nothing is found."""

import re
from collections.abc import Generator, Sequence
from itertools import pairwise
from random import Random
from typing import Any
from uuid import uuid4

from memserver.messages import FunctionCall, PromptMessage
from sweet_rl.warm_start.corpus import CorpusQuestion
from sweet_rl.warm_start.intents import Consult, Converse, Follow, Remember
from sweet_rl.warm_start.reading import (
    CANT_FIND,
    LONGEST_QUERY,
    LONGEST_SAID,
    answer,
    not_found,
    quote,
)

Steps = Generator[FunctionCall, Sequence[PromptMessage], None]
"""The calls of one turn; each takes the prompt of the next step back."""
SECTION = "human"
MOST_PAGES = 2
RECENT = 6
"""Messages at the prompt's end that are surely seen."""
NOTHING_TO_SAVE = "nothing_to_save"
INSUFFICIENT = "INSUFFICIENT INFORMATION"
_PAGES = re.compile(r"\(page \d+/(\d+)")
_AROUND = 24
"""Characters of a sentence, on both sides of its answer, that have to be seen."""


def steps(
    intent: Converse | Remember | Consult | Follow, prompt: Sequence[PromptMessage], random: Random
) -> Steps:
    match intent:
        case Converse():
            yield from converse(intent, prompt)
        case Remember():
            yield from remember(intent, prompt, random)
        case Consult():
            yield from consult(intent, prompt, random)
        case Follow():
            yield from follow(intent, random)


def converse(intent: Converse, prompt: Sequence[PromptMessage]) -> Steps:
    shown = prompt
    for note in intent.notes:
        call = save(note, shown)
        if call is not None:
            shown = yield call
    yield say(intent.reply)


def remember(intent: Remember, prompt: Sequence[PromptMessage], random: Random) -> Steps:
    """Answer from the notes or from what was said just now; else search, page after page; else admit it.

    What stands further up is searched for too: a small model doesn't see in 1,500 tokens whether it is there.
    """
    question = intent.question
    known = next(
        (
            note
            for note in intent.notes
            if note in notes(prompt) and question.answer.lower() in note.lower()
        ),
        "",
    )
    if known:
        yield say(f'{question.answer[:1].upper()}{question.answer[1:]}. I noted: "{known}"')
        return
    reply = answer(question, intent.speaker)
    if question.evidence and in_sight(question, prompt[-RECENT:]):
        yield say(reply)
        return
    found = yield from _search("recall_memory_search", question)
    if question.kind == "unanswerable" or found:
        yield say(reply)
    else:
        yield say(not_found(random))


def consult(intent: Consult, prompt: Sequence[PromptMessage], random: Random) -> Steps:
    question = intent.question
    found = bool(question.evidence) and in_sight(question, prompt)
    if not found:
        found = yield from _search("archival_memory_search", question)
    if not found:
        yield say(INSUFFICIENT if intent.quoted else not_found(random))
    elif intent.quoted:
        start = f"ANSWER: {question.answer}, DOCUMENT: "
        yield say(start + quote(question, LONGEST_SAID - len(start)))
    else:
        yield say(answer(question, ""))


def follow(intent: Follow, random: Random) -> Steps:
    for key, value in pairwise(intent.chain):
        shown = yield call("archival_memory_search", query=key, request_heartbeat=True)
        if not re.search(rf"{key}\W{{1,6}}{value}", last_result(shown)):
            yield say(not_found(random))
            return
    yield call("archival_memory_search", query=intent.chain[-1], request_heartbeat=True)
    yield say(f"The value is {intent.chain[-1]}.")


def is_lost(intent: object, call: FunctionCall) -> bool:
    """Whether a call gives up on what was said, since no search has found it: not worth learning."""
    said = str(call.arguments.get("message", ""))
    answerable = isinstance(intent, Remember) and intent.question.kind != "unanswerable"
    return answerable and said.startswith(CANT_FIND)


def save_before_eviction(
    lasting: Sequence[tuple[str, str]], prompt: Sequence[PromptMessage]
) -> FunctionCall:
    """The right call after a pressure alert: the next note that is missing, or that there is none."""
    texts = [part.text for part in prompt if part.role == "user"]
    for text, note in lasting:
        if any(text in shown for shown in texts):
            found = save(note, prompt)
            if found is not None:
                return found
    return call(NOTHING_TO_SAVE)


def save(note: str, prompt: Sequence[PromptMessage]) -> FunctionCall | None:
    """The call that takes a note, or changes one; None where it stands there already."""
    old, arrow, new = note.partition(" -> ")
    kept = notes(prompt)
    wanted = new if arrow else note
    if wanted in kept:
        return None
    if arrow and old in kept:
        return call(
            "working_context_replace",
            section=SECTION,
            old_content=old,
            new_content=new,
            request_heartbeat=True,
        )
    return call("working_context_append", section=SECTION, content=wanted, request_heartbeat=True)


def in_sight(question: CorpusQuestion, prompt: Sequence[PromptMessage]) -> bool:
    """Whether the prompt shows the sentence, or enough of it around the answer."""
    said = [str(part.call.arguments.get("message", "")) for part in prompt if part.call is not None]
    return any(shows(text, question) for text in (*(part.text for part in prompt), *said))


def shows(text: str, question: CorpusQuestion) -> bool:
    """Whether a text holds the sentence, marked or not, or enough of it around the answer."""
    plain = " ".join(text.replace("**", "").split())
    sentence = " ".join(question.evidence.split())
    if sentence in plain:
        return True
    at = sentence.find(question.answer)
    if at < 0:
        return False
    return sentence[max(0, at - _AROUND) : at + len(question.answer) + _AROUND] in plain


def notes(prompt: Sequence[PromptMessage]) -> set[str]:
    systems = [part.text for part in prompt if part.role == "system"]
    return {line.strip() for text in systems for line in text.splitlines()}


def last_result(prompt: Sequence[PromptMessage]) -> str:
    return next((part.text for part in reversed(prompt) if part.role == "tool"), "")


def say(message: str) -> FunctionCall:
    return call("send_message", message=message)


def call(name: str, **arguments: Any) -> FunctionCall:  # noqa: ANN401 - JSON
    return FunctionCall(f"call_{uuid4().hex[:12]}", name, dict(arguments))


def _search(
    tool: str, question: CorpusQuestion
) -> Generator[FunctionCall, Sequence[PromptMessage], bool]:
    query = question.text[:LONGEST_QUERY]
    for page in range(1, MOST_PAGES + 1):
        further = {} if page == 1 else {"page": page}
        shown = yield call(tool, query=query, **further, request_heartbeat=True)
        result = last_result(shown)
        if question.evidence and shows(result, question):
            return True
        pages = _PAGES.search(result)
        if pages is None or int(pages[1]) <= page:
            break
    return False
