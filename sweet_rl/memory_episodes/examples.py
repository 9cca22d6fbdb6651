"""Records as what a model learns from or is asked about: rows of tokens, with who is better.

The prompts of a stretch only grow, so one row holds them all: the longest prompt, and each call, as a branch of its own,
where its prompt ends. A call sees its own prompt and itself (the mask is that of `sweet_rl.rows`), and no other call. An
episode has some ten stretches and forty calls, so this is a quarter of the tokens, or less.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sweet_rl.memory_episodes.records import Episode, Kept, Ordered, Preferred, Task
from sweet_rl.memory_episodes.tasks import hidden_of
from sweet_rl.pairs import with_prefix
from sweet_rl.rows import Row
from sweet_rl.trajectories import Candidates, ChatMessage

Tokenizer = Any
"""Hugging Face's."""
_HEADER = "<|im_start|>assistant\n"
_END = "<|im_end|>"
Plays = Mapping[tuple[str, int], Episode]


@dataclass(frozen=True, slots=True)
class Call:
    shown: int  # messages of the row's that it answers
    text: str  # the call as the model writes it
    side: int  # whose score it goes into


@dataclass(frozen=True, slots=True)
class ScoredRow:
    row: Row  # what goes through the model
    weights: tuple[float, ...]  # of each token; 0 for all that isn't scored
    sides: tuple[int, ...]  # of each token


@dataclass(frozen=True, slots=True)
class Example:
    """Sides with preferences among them: the plays of one task, or the calls of one state."""

    rows: tuple[ScoredRow, ...]  # their sides are numbered from 0
    pairs: tuple[tuple[int, int], ...]  # the better side and the worse one
    # what each side's weights add up to: its tokens, or its calls where a call's score is a mean
    lengths: tuple[int, ...]
    references: tuple[float, ...] = ()  # each side's score by the reference

    @property
    def tokens(self) -> int:
        return sum(len(each.row.ids) for each in self.rows)


def scored_row(
    messages: Sequence[ChatMessage], calls: Sequence[Call], tokenizer: Tokenizer, *, mean: bool
) -> ScoredRow:
    """A row for calls in the order of what they answer; a call's score is the mean of its tokens', or their sum."""
    tokens: list[tuple[int, int, int, int, float, int]] = []
    header, prompt, written = _ids(tokenizer, _HEADER), 0, 0

    def write(
        ids: Sequence[int], branch: int, start: int, weight: float = 0.0, side: int = 0
    ) -> None:
        scored = int(weight > 0)
        tokens.extend(
            (token, scored, branch, position, weight, side)
            for position, token in enumerate(ids, start)
        )

    for number, call in enumerate(calls, 1):
        for message in messages[written : call.shown]:
            ids = _message(tokenizer, message)
            write(ids, 0, prompt)
            prompt += len(ids)
        written = call.shown
        said = [*_ids(tokenizer, call.text), *_ids(tokenizer, _END)]
        write(
            header, number, prompt
        )  # a call is a branch; the prompt continues as if it weren't there
        write(said, number, prompt + len(header), 1 / len(said) if mean else 1.0, call.side)
    row_ids, scored, branches, positions, weights, sides = zip(*tokens, strict=True)
    row = Row(list(row_ids), list(scored), branches, positions, (0,) * len(tokens))
    return ScoredRow(row, weights, sides)


def _message(tokenizer: Tokenizer, message: ChatMessage) -> tuple[int, ...]:
    return _ids(tokenizer, f"<|im_start|>{message['role']}\n{message['content']}{_END}\n")


@lru_cache(maxsize=50_000)
def _ids(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def examples_of_plays(
    pairs: Iterable[Preferred],
    plays: Plays,
    tokenizer: Tokenizer,
    *,
    informed: Mapping[str, Task] | None = None,
    mean: bool = False,
) -> list[Example]:
    """One example for each task: its plays, each once, however many pairs it is in.

    Args:
        pairs: of plays.
        plays: by task and sample.
        tokenizer: of the model.
        informed: tasks whose hidden information is put into every prompt.
        mean: a call counts by the mean of its tokens (the critic), else by their sum (multi-turn DPO).
    """
    by_task: dict[str, list[Preferred]] = defaultdict(list)
    for each in pairs:
        by_task[each.task].append(each)
    found = []
    for task, own in by_task.items():
        samples = sorted({one for each in own for one in (each.better, each.worse)})
        hidden = (informed or {}).get(task)
        rows, lengths = [], []
        for side, sample in enumerate(samples):
            played = plays[task, sample]
            new = _rows(played, side, hidden, tokenizer, mean=mean)
            rows += new
            lengths.append(len(played.steps) if mean else _length(new))
        order = [(samples.index(each.better), samples.index(each.worse)) for each in own]
        found.append(Example(tuple(rows), tuple(order), tuple(lengths)))
    return found


def examples_to_imitate(
    chosen: Iterable[Kept], plays: Plays, tokenizer: Tokenizer
) -> list[Example]:
    found = []
    for each in chosen:
        rows = _rows(plays[each.task, each.sample], 0, None, tokenizer, mean=False)
        found.append(Example(tuple(rows), (), (_length(rows),)))
    return found


def examples_of_states(states: Iterable[Ordered], tokenizer: Tokenizer) -> list[Example]:
    found = []
    for state in states:
        places = sorted({place for pair in state.pairs for place in pair})
        texts = [state.candidates[place] for place in places]
        row = row_of_calls(state.messages, texts, tokenizer, mean=False)
        pairs = tuple((places.index(a), places.index(b)) for a, b in state.pairs)
        lengths = Counter(
            side for side, scored in zip(row.sides, row.weights, strict=True) if scored
        )
        found.append(Example((row,), pairs, tuple(lengths[side] for side in range(len(texts)))))
    return found


def examples_to_score(
    states: Iterable[Candidates], tokenizer: Tokenizer, *, hidden: bool
) -> list[Example]:
    found = []
    for state in states:
        messages = with_prefix(state.messages, state.hidden) if hidden else state.messages
        row = row_of_calls(messages, state.candidates, tokenizer, mean=True)
        found.append(Example((row,), (), (1,) * len(state.candidates)))
    return found


def row_of_calls(
    messages: Sequence[ChatMessage], texts: Sequence[str], tokenizer: Tokenizer, *, mean: bool
) -> ScoredRow:
    calls = [Call(len(messages), text, side) for side, text in enumerate(texts)]
    return scored_row(messages, calls, tokenizer, mean=mean)


def _rows(
    episode: Episode, side: int, informed: Task | None, tokenizer: Tokenizer, *, mean: bool
) -> list[ScoredRow]:
    rows = []
    for stretch in episode.stretches:
        messages: Sequence[ChatMessage] = stretch.messages
        if informed is not None:
            begin = messages[: stretch.steps[0].shown]
            messages = with_prefix(messages, hidden_of(informed, begin))
        calls = [Call(step.shown, step.action, side) for step in stretch.steps]
        rows.append(scored_row(messages, calls, tokenizer, mean=mean))
    return rows


def _length(rows: Iterable[ScoredRow]) -> int:
    return sum(int(weight) for row in rows for weight in row.weights)
