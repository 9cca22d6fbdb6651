"""Tasks made of the corpus' people: five questions about one conversation, what of them is hidden, and the reward.

The reward is scored as MSC is: the right answer must stand within the first 15 words (or as many as itself has), so that
pasting what a search found doesn't pay. What was never said must be admitted. The hidden information (what will be
asked, its answer, where it lies, and whether it is out of sight by now) stands before the system message in a critic's
prompt, in training and in ranking. No actor's prompt ever has it.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from random import Random

from memserver.llm.wire import RESULT_MARK
from memserver_evals.scoring.text import (
    ANSWER_WORDS,
    admits_not_knowing,
    contains,
    count_words,
    first_words,
)
from sweet_rl.memory_episodes.records import Asked, EpisodeLine, Outcome, Task
from sweet_rl.trajectories import ChatMessage
from sweet_rl.warm_start.corpus import CorpusQuestion, Written
from sweet_rl.warm_start.reading import turn_lines

WINDOWS = (1280, 1536, 2048)
QUESTIONS = 5
UNANSWERABLE = 1 / 3
"""Share of the tasks with a question about what was never said."""
ASKED_KINDS = ("fact", "update")
"""The answer is a span of a sentence, so that a rule can say whether it was given."""
_HEAD = "What will be asked at the end:"


def tasks_of(talks: Sequence[Written], *, each: int, seed: int) -> Iterator[Task]:
    for talk in talks:
        random = Random(f"{seed} {talk.name}")
        pool: list[CorpusQuestion] = []
        for number in range(each):
            if len(pool) < QUESTIONS:
                pool = _shuffled(talk, random)
            chosen = [pool.pop() for _ in range(QUESTIONS)]
            never = [one for one in talk.questions if one.kind == "unanswerable"]
            if never and random.random() < UNANSWERABLE:
                chosen[random.randrange(QUESTIONS)] = random.choice(never)
            yield _task(talk, number, chosen, random)


def _shuffled(talk: Written, random: Random) -> list[CorpusQuestion]:
    found = [one for one in talk.questions if one.kind in ASKED_KINDS]
    return random.sample(found, len(found))


def _task(talk: Written, number: int, chosen: Sequence[CorpusQuestion], random: Random) -> Task:
    lines = tuple(
        EpisodeLine(speaker=turn.speaker, text=turn.text, at=line.at)
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


def outcome(asked: Asked, answer: str) -> Outcome:
    return Outcome(answer=answer, right=_is_right(asked, answer))


def reward(outcomes: Sequence[Outcome]) -> float:
    return sum(each.right for each in outcomes) / len(outcomes)


def _is_right(asked: Asked, answer: str) -> bool:
    if asked.line is None:
        return admits_not_knowing(answer)
    most = max(ANSWER_WORDS, count_words(asked.answer))
    return contains(first_words(answer, most), [asked.answer])


def hidden_of(task: Task, prompt: Sequence[ChatMessage]) -> str:
    """The hidden information for a state, and for all of the stretch that begins with it."""
    first, notes = _queue_begins(task, prompt), prompt[0]["content"]
    rows = []
    for number, asked in enumerate(task.asked, 1):
        if asked.line is None:
            rows.append(f"{number}. {asked.text} It is never said.")
            continue
        where = [f"message {asked.line + 1}, the {task.lines[asked.line].speaker}'s"]
        if asked.line < first:
            where.append("out of sight")
        if asked.answer.casefold() in notes.casefold():
            where.append("noted")
        rows.append(
            f'{number}. {asked.text} Answer: {asked.answer}. "{asked.evidence}" ({", ".join(where)})'
        )
    return "\n".join([_HEAD, *rows])


def _queue_begins(task: Task, prompt: Sequence[ChatMessage]) -> int:
    """The number of the first line that the queue still holds; the questions follow the lines."""
    texts = [line.text for line in task.lines] + [asked.text for asked in task.asked]
    for message in prompt[1:]:
        content = message["content"]
        if content.startswith(RESULT_MARK):
            continue  # it may quote what is out of sight
        said = content.partition("] ")[2] if message["role"] == "user" else content
        if said in texts:
            return texts.index(said)
    return 0
