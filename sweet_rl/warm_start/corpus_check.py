"""Whether the corpus is what its data card says: `python -m sweet_rl.warm_start.corpus_check [FILE …]`.

Each file's faults, and a line on what its questions are like; without files, the whole corpus, with what
only the whole can show: phrases in too many conversations, people in more than one.
"""

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from sweet_rl.warm_start.corpus import (
    AGENT,
    CORPUS,
    CorpusError,
    CorpusQuestion,
    Written,
    asides,
    conversations,
    passages,
    read_conversation,
    read_passages,
)
from sweet_rl.warm_start.wordings import read_data

PHRASE = 8
MOST_CONVERSATIONS = 3
"""A phrase of `PHRASE` words may stand in so many conversations."""
SHORTEST, LONGEST = 4, 48
LONGEST_SPAN = 7
LONGEST_NOTE = 24
"""Words, of both where one becomes another."""
_STOP = frozenset(read_data("wordings")["check"]["stop_words"].split())


def words_of(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.lower())


def content_words(text: str) -> set[str]:
    return {_stem(word) for word in words_of(text) if word not in _STOP}


def overlap(question: CorpusQuestion) -> int:
    """How many content words a question shares with the sentence that answers it."""
    return len(content_words(question.text) & content_words(question.evidence))


def faults(talk: Written) -> Iterator[str]:
    if not 3 <= len(talk.sessions) <= 5:
        yield f"{len(talk.sessions)} sessions"
    if list(talk.sessions) != sorted(talk.sessions):
        yield "sessions out of order"
    if not 28 <= len(talk.turns) <= 64:
        yield f"{len(talk.turns)} turns"
    if not 10 <= len(talk.questions) <= 15:
        yield f"{len(talk.questions)} questions"
    for turn in talk.turns:
        if not SHORTEST <= len(turn.text.split()) <= LONGEST:
            yield f"a turn of {len(turn.text.split())} words: {turn.text[:60]}"
    for question in talk.questions:
        if question.kind in {"fact", "update"} and len(question.answer.split()) > LONGEST_SPAN:
            yield f"a long answer: {question.answer}"
    yield from _faults_of_notes([note for turn in talk.turns for note in turn.notes])


def faults_of_aside(talk: Written) -> Iterator[str]:
    said = [turn for turn in talk.turns if turn.speaker == "user"]
    speakers = [turn.speaker for turn in talk.turns]
    if talk.assistant != AGENT:
        yield f"the assistant is {talk.assistant}, not {AGENT}"
    if len(talk.sessions) not in {1, 2} or list(talk.sessions) != sorted(talk.sessions):
        yield f"{len(talk.sessions)} sessions, or out of order"
    if speakers != ["user", "assistant"] * len(said) or not 8 <= len(said) <= 12:
        yield f"{len(said)} turns of the user, each of which needs an answer"
    if not 13 <= len(talk.questions) <= 22:
        yield f"{len(talk.questions)} questions"
    for turn in said:
        if not 10 <= len(turn.text.split()) <= LONGEST:
            yield f"a turn of {len(turn.text.split())} words: {turn.text[:60]}"
    for question in (each for each in talk.questions if each.kind in {"fact", "update"}):
        place = talk.place(question)
        notes = talk.turns[place].notes if place is not None else ()
        if not any(question.answer.lower() in note.lower() for note in notes):
            yield f"no note of what the user said holds the answer: {question.text}"
        if question.answer.lower() in question.text.lower():
            yield f"it holds its answer: {question.text}"
    yield from _faults_of_notes([note for turn in talk.turns for note in turn.notes])


def _faults_of_notes(notes: Sequence[str]) -> Iterator[str]:
    kept: set[str] = set()
    for note in notes:
        old, arrow, new = note.partition(" -> ")
        if arrow and old not in kept:
            yield f"a change of a note that isn't there: {old}"
        kept = (kept - {old}) | {new if arrow else note}
        if len(note.split()) > LONGEST_NOTE:
            yield f"a long note: {note}"


def describe(talk: Written) -> str:
    places = [talk.place(question) for question in talk.questions]
    of_assistant = sum(
        place is not None and talk.turns[place].speaker == "assistant" for place in places
    )
    notes = sum(len(turn.notes) for turn in talk.turns)
    length = sum(len(turn.text.split()) for turn in talk.turns) / len(talk.turns)
    return (
        f"{len(talk.turns)} turns of {length:.0f} words, {notes} notes; {len(talk.questions)} questions, {of_assistant} of "
        f"what the assistant said; shared words 0/1/2+: {_shared(talk.questions)}; {_kinds(talk.questions)}"
    )


def _shared(questions: Sequence[CorpusQuestion]) -> str:
    """How many questions share no word, one, or more with the sentence that answers them."""
    spans = [question for question in questions if question.kind in {"fact", "update"}]
    shared = Counter(min(overlap(question), 2) for question in spans)
    return f"{shared[0]}/{shared[1]}/{shared[2]}"


def _kinds(questions: Sequence[CorpusQuestion]) -> dict[str, int]:
    return dict(Counter(question.kind for question in questions))


def phrases(text: str) -> Iterator[str]:
    words = words_of(text)
    for start in range(len(words) - PHRASE + 1):
        yield " ".join(words[start : start + PHRASE])


def common_phrases(talks: Sequence[Written]) -> list[tuple[str, list[str]]]:
    where: dict[str, set[str]] = defaultdict(set)
    for talk in talks:
        for turn in talk.turns:
            for phrase in phrases(turn.text):
                where[phrase].add(talk.name)
    return [
        (phrase, sorted(names))
        for phrase, names in where.items()
        if len(names) > MOST_CONVERSATIONS
    ]


def main(files: Sequence[str]) -> int:
    """Print the report; returns how many faults there are."""
    every = [
        path
        for kind in ("conversations", "asides", "passages")
        for path in sorted((CORPUS / kind).glob("*.txt"))
    ]
    found = sum(_report(path, quiet=not files) for path in map(Path, files or every))
    if files or found:
        return found
    talks = [*conversations(), *asides()]
    people = Counter(name for talk in talks for name in (talk.user, talk.assistant))
    people.pop(AGENT, None)
    wrong = [
        *(
            f"{name} is in more than one conversation"
            for name, count in people.items()
            if count > 1
        ),
        *(f"'{phrase}' is in {', '.join(names)}" for phrase, names in common_phrases(talks)),
    ]
    questions = [question for talk in talks for question in talk.questions]
    _show(
        *wrong,
        f"{len(talks)} conversations of {len({talk.topic for talk in talks})} topics, "
        f"{sum(len(talk.turns) for talk in talks)} turns; {len(questions)} questions {_kinds(questions)}; "
        f"shared words 0/1/2+ {_shared(questions)}; sides {dict(Counter(talk.side for talk in talks))}; "
        f"{len(passages())} passages, {sum(len(each.questions) for each in passages())} questions",
    )
    return len(wrong)


def _show(*lines: object) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _report(path: Path, *, quiet: bool) -> int:
    try:
        if path.parent.name == "passages":
            shelf = list(read_passages(path))
            wrong: list[str] = []
            what = f"{len(shelf)} passages, {sum(len(each.questions) for each in shelf)} questions"
        else:
            talk = read_conversation(path)
            check = faults_of_aside if talk.assistant == AGENT else faults
            wrong, what = list(check(talk)), describe(talk)
    except CorpusError as error:
        _show(error)
        return 1
    _show(*(f"{path.name}: {line}" for line in (*wrong, *(() if quiet else (what,)))))
    return len(wrong)


def _stem(word: str) -> str:
    return re.sub(r"(ies|ing|ed|es|s|'s)$", "", word)[:6] if len(word) > 3 else word


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
