"""Tasks made of the corpus' people: what they said in one conversation, and five questions about it at the end."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from random import Random

from sweet_rl.memory_episodes.records import Asked, Line, Task
from sweet_rl.warm_start.corpus import Question, Written
from sweet_rl.warm_start.reading import turn_lines

WINDOWS = (1280, 1536, 2048)
QUESTIONS = 5
UNANSWERABLE = 1 / 3
"""Share of the tasks with a question about what was never said."""
ASKED_KINDS = ("fact", "update")
"""The answer is a span of a sentence, so that a rule can say whether it was given."""


def tasks_of(talks: Sequence[Written], *, each: int, seed: int) -> Iterator[Task]:
    for talk in talks:
        random = Random(f"{seed} {talk.name}")
        pool: list[Question] = []
        for number in range(each):
            if len(pool) < QUESTIONS:
                pool = _shuffled(talk, random)
            chosen = [pool.pop() for _ in range(QUESTIONS)]
            never = [one for one in talk.questions if one.kind == "unanswerable"]
            if never and random.random() < UNANSWERABLE:
                chosen[random.randrange(QUESTIONS)] = random.choice(never)
            yield _task(talk, number, chosen, random)


def _shuffled(talk: Written, random: Random) -> list[Question]:
    found = [one for one in talk.questions if one.kind in ASKED_KINDS]
    return random.sample(found, len(found))


def _task(talk: Written, number: int, chosen: Sequence[Question], random: Random) -> Task:
    lines = tuple(
        Line(speaker=turn.speaker, text=turn.text, at=line.at)
        for line, turn in zip(turn_lines(talk), talk.turns, strict=True)
    )
    at = _later(lines[-1].at, random)
    asked = []
    for question in chosen:
        asked.append(
            Asked(
                text=question.text,
                answer=question.answer,
                evidence=question.evidence,
                kind=question.kind,
                line=talk.place(question),
                at=at,
            )
        )
        at += timedelta(minutes=random.randint(1, 9))
    return Task(
        id=f"{talk.name}-{number}",
        topic=talk.topic,
        side=talk.side,
        window=random.choice(WINDOWS),
        lines=lines,
        asked=tuple(asked),
    )


def _later(at: datetime, random: Random) -> datetime:
    return at.astimezone(UTC) + timedelta(days=random.randint(2, 30), minutes=random.randint(0, 99))
