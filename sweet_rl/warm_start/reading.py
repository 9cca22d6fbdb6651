"""Reading and quoting: from the lines that a search found, or that a prompt shows, to a short answer and its sentence.

The first stage of the warm start. Each question of the corpus becomes several lessons, among other lines and in
other forms: a page of results as the server writes it, in an agent's prompt; or lines below instructions, as a
reader without memserver gets them. Where no line holds the answer, saying so is right.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

from memserver.llm.wire import RESULT_MARK, call_as_json
from memserver.memory.paging import ResultPage, header
from memserver.memory.working_context import default_sections
from memserver.messages import FunctionCall
from memserver.prompts import Prompts, shipped_prompts
from sweet_rl.warm_start.chains import Chain, Lesson
from sweet_rl.warm_start.corpus import CorpusQuestion, Passage, Turn, Written
from sweet_rl.warm_start.wordings import read_data

_SAY = read_data("wordings")["reading"]

LONGEST_SAID = 190
"""Characters of a message: the local model's calls hold 200 in one argument."""
LONGEST_QUERY = 190
PAGE_SIZES = (2, 3, 4, 4, 4, 8, 10)
GONE = 0.05
"""Of the lessons have lost the line with the answer: with .12 a model gives up on one in six that it could answer."""
CANT_FIND = "I can't find that."
_WORD = re.compile(r"[\w']+")


@dataclass(frozen=True, slots=True)
class Line:
    label: str
    text: str
    at: datetime
    speaker: str = ""


def answer(question: CorpusQuestion, speaker: str) -> str:
    """What is said in reply: the answer first, then the sentence that it stands in."""
    if question.kind == "unanswerable":
        return not_found(Random(question.text))
    if question.kind in {"date", "retracted", "premise"}:
        return _fit(question.answer)
    said = {"assistant": "I said:", "user": "You said:"}.get(speaker, "It says:")
    start = question.answer[:1].upper() + question.answer[1:].rstrip(".,;:")
    return f'{start}. {said} "{quote(question, LONGEST_SAID - len(start) - len(said) - 6)}"'


def quote(question: CorpusQuestion, characters: int) -> str:
    text = question.evidence
    if len(text) <= characters:
        return text
    end = text.index(question.answer) + len(question.answer) if question.answer in text else 0
    if end > characters - 1:
        start = text.index(" ", max(0, end - characters + 2)) + 1
        return f"…{text[start:end]}"
    return f"{text[:characters].rsplit(' ', 1)[0]}…"


def not_found(random: Random) -> str:
    return f"{CANT_FIND} {random.choice(_SAY['nothing'])}"


def lessons_of(talk: Written, random: Random, prompts: Prompts, *, each: int) -> Iterable[Chain]:
    lines = turn_lines(talk)
    later = talk.sessions[-1].replace(tzinfo=UTC) + timedelta(days=random.randint(3, 90))
    for question in talk.questions:
        place = talk.place(question)
        said = answer(question, talk.turns[place].speaker if place is not None else "")
        for _ in range(each):
            gone = place is not None and random.random() < GONE
            known = None if gone else place
            reply = not_found(random) if gone else said
            near = nearest(question, lines, random)
            if gone:
                near = [one for one in near if not _holds(lines[one].text, question)]
            shown = _shown(near, known, random)
            form = random.choices((_page, _evaluation), (3, 2))[0]
            chosen = [lines[one] for one in shown]
            if form is _evaluation and random.random() < 0.2 and not gone:
                chosen = lines
            yield form(chosen, question, reply, later, random, prompts)


def lessons_of_passages(
    shelf: Sequence[Passage], random: Random, prompts: Prompts, *, each: int
) -> Iterable[Chain]:
    now = datetime(2026, 1, 1, 9, tzinfo=UTC)
    lines = [
        Line(f"p{number + 1}", f"{one.title}. {one.text}", now) for number, one in enumerate(shelf)
    ]
    for number, passage in enumerate(shelf):
        for question in passage.questions:
            place = None if question.kind == "unanswerable" else number
            said = answer(question, "")
            for _ in range(each):
                near = nearest(question, lines, random)
                gone = place is not None and random.random() < GONE
                if gone:
                    near = [one for one in near if one != number]
                reply = not_found(random) if gone else said
                shown = _shown(near, None if gone else place, random, most=random.choice((1, 3, 5)))
                chosen = [lines[one] for one in shown]
                form = random.choices((_page, _evaluation), (3, 2))[0]
                yield form(chosen, question, reply, now + timedelta(days=2), random, prompts)


def turn_lines(talk: Written) -> list[Line]:
    lines, step = [], 0
    for number, turn in enumerate(talk.turns):
        step = step + 1 if number and talk.turns[number - 1].session == turn.session else 0
        lines.append(
            Line(f"m{(number + 1) * 1000}", turn.text, at_of(talk, turn, step), turn.speaker)
        )
    return lines


def at_of(talk: Written, turn: Turn, step: int) -> datetime:
    """When a turn was said: the session's time and some minutes for each turn before it."""
    return talk.sessions[turn.session].replace(tzinfo=UTC) + timedelta(minutes=2 * step)


def nearest(question: CorpusQuestion, lines: Sequence[Line], random: Random) -> list[int]:
    """The lines by what they share with the question, as a search would have them, with some chance."""
    asked = Counter(_words(question.text))
    held = [set(_words(line.text)) for line in lines]
    weight = {
        word: math.log(1 + len(lines) / (1 + sum(word in words for words in held)))
        for word in asked
    }
    scores = [
        sum(weight[word] for word in asked if word in words) + random.gauss(0, 1.2)
        for words in held
    ]
    return sorted(range(len(lines)), key=lambda place: -scores[place])


def _shown(
    near: Sequence[int], place: int | None, random: Random, most: int | None = None
) -> list[int]:
    size = most or random.choice(PAGE_SIZES)
    shown = list(near[:size])
    if place is not None and place not in shown:
        shown[random.randrange(len(shown)) if shown else 0 :] = [place, *shown[-1:]][
            : max(1, len(shown))
        ]
        shown = list(dict.fromkeys(shown))
    return shown


def _page(
    lines: Sequence[Line],
    question: CorpusQuestion,
    said: str,
    now: datetime,
    random: Random,
    prompts: Prompts,
) -> Chain:
    """An agent's prompt whose search has found these lines."""
    archival = bool(lines) and not lines[0].speaker
    sections = default_sections()
    head = "\n\n".join(
        (
            prompts.render("system.md"),
            prompts.render(
                "working_context.md",
                sections=sections,
                messages=random.randint(20, 400),
                passages=len(lines) * random.randint(2, 9) if archival else 0,
                edited_at="2026-01-01 09:00",
            ),
        )
    )
    total = len(lines) * random.randint(1, 9)
    rows = [
        f"[{line.label}, {line.at:%Y-%m-%d %H:%M}{_found_by(line, question, archival)}] "
        f"{f'{line.speaker}: ' if line.speaker else ''}{line.text}"
        for line in lines
    ]
    result = "\n".join([header(len(lines), ResultPage(1, max(1, len(lines))), total), *rows])
    tool = "archival_memory_search" if archival else "recall_memory_search"
    call = FunctionCall(
        "", tool, {"query": question.text[:LONGEST_QUERY], "request_heartbeat": True}
    )
    return _chain(
        [
            ("system", head),
            ("user", f"[{now:%Y-%m-%d %H:%M}] {question.text}"),
            ("assistant", call_as_json(call)),
            ("user", f"{RESULT_MARK}{tool}]\nOK. {result}"),
        ],
        said,
    )


def _found_by(line: Line, question: CorpusQuestion, archival: bool) -> str:
    if archival:
        return ""
    shared = set(_words(line.text)) & set(_words(question.text))
    return ", words and meaning" if shared else ", meaning"


def _evaluation(
    lines: Sequence[Line],
    question: CorpusQuestion,
    said: str,
    now: datetime,
    random: Random,
    prompts: Prompts,
) -> Chain:
    """The prompt of a reader without memserver, with these lines in order of time."""
    history: list[str] = []
    documents: list[str] = []
    day = ""
    for line in sorted(lines, key=lambda one: one.at):
        if not line.speaker:
            documents.append(f"[{line.label}] {line.text}")
            continue
        if (new := f"{line.at:%Y-%m-%d}") != day:
            day = new
            history.append(f"({day})")
        history.append(f"{line.speaker.capitalize()}: {line.text}")
    head = prompts.render(
        "evaluation.md",
        instructions=random.choice(_SAY["instructions"]),
        persona="",
        human="",
        documents=documents,
        summary="",
        history=history,
        now=f"{now:%Y-%m-%d %H:%M}",
    )
    return _chain([("system", head), ("user", question.text)], said)


def _chain(messages: Sequence[tuple[str, str]], said: str) -> Chain:
    call = call_as_json(FunctionCall("", "send_message", {"message": said}))
    written = [{"role": role, "content": text} for role, text in messages]
    return Chain(
        (*written, {"role": "assistant", "content": call}),
        (Lesson(len(written), "read", said.split(".")[0]),),
    )


def _holds(text: str, question: CorpusQuestion) -> bool:
    return question.evidence in text or question.answer.lower() in text.lower()


def _words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.lower()) if len(word) > 2]


def _fit(text: str) -> str:
    return text if len(text) <= LONGEST_SAID else f"{text[: LONGEST_SAID - 1].rsplit(' ', 1)[0]}…"


def small_model_prompts() -> Prompts:
    return Prompts(shipped_prompts() / "small_model")
