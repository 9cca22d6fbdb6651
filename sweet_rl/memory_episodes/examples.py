"""Records as what a model learns from or is asked about: rows of tokens, with who is better."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from sweet_rl.memory_episodes.hidden import hidden_of, with_hidden
from sweet_rl.memory_episodes.learning import Example
from sweet_rl.memory_episodes.records import Episode, Kept, Ordered, Preferred, Task
from sweet_rl.memory_episodes.rows import Call, ScoredRow, Tokenizer, scored_row
from sweet_rl.trajectories import Candidates, ChatMessage

Plays = Mapping[tuple[str, int], Episode]


def examples_of_plays(
    pairs: Iterable[Preferred], plays: Plays, tokenizer: Tokenizer, *, mean: bool = False
) -> list[Example]:
    """One example for each task: its plays, each once, however many pairs it is in."""
    return _of_plays(pairs, plays, {}, tokenizer, mean=mean)


def examples_for_critic(
    pairs: Iterable[Preferred], plays: Plays, tasks: Mapping[str, Task], tokenizer: Tokenizer
) -> list[Example]:
    return _of_plays(pairs, plays, tasks, tokenizer, mean=True)


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
        lengths = [0] * len(texts)
        for side, weight in zip(row.sides, row.weights, strict=True):
            lengths[side] += int(weight)
        found.append(Example((row,), pairs, tuple(lengths)))
    return found


def examples_to_score(
    states: Iterable[Candidates], tokenizer: Tokenizer, *, hidden: bool
) -> list[Example]:
    found = []
    for state in states:
        messages = with_hidden(state.messages, state.hidden) if hidden else state.messages
        row = row_of_calls(messages, state.candidates, tokenizer, mean=True)
        found.append(Example((row,), (), (1,) * len(state.candidates)))
    return found


def row_of_calls(
    messages: Sequence[ChatMessage], texts: Sequence[str], tokenizer: Tokenizer, *, mean: bool
) -> ScoredRow:
    calls = [Call(len(messages), text, side) for side, text in enumerate(texts)]
    return scored_row(messages, calls, tokenizer, mean=mean)


def _of_plays(
    pairs: Iterable[Preferred],
    plays: Plays,
    tasks: Mapping[str, Task],
    tokenizer: Tokenizer,
    *,
    mean: bool,
) -> list[Example]:
    by_task: dict[str, list[Preferred]] = defaultdict(list)
    for each in pairs:
        by_task[each.task].append(each)
    found = []
    for task, own in by_task.items():
        samples = sorted({one for each in own for one in (each.better, each.worse)})
        sides = [
            _rows(plays[task, sample], side, tasks.get(task), tokenizer, mean=mean)
            for side, sample in enumerate(samples)
        ]
        found.append(
            Example(
                tuple(row for rows in sides for row in rows),
                tuple((samples.index(each.better), samples.index(each.worse)) for each in own),
                tuple(
                    len(plays[task, one].steps) if mean else _length(rows)
                    for one, rows in zip(samples, sides, strict=True)
                ),
            )
        )
    return found


def _rows(
    episode: Episode, side: int, told: Task | None, tokenizer: Tokenizer, *, mean: bool
) -> list[ScoredRow]:
    rows = []
    for stretch in episode.stretches:
        messages: Sequence[ChatMessage] = stretch.messages
        if told is not None:
            begin = messages[: stretch.steps[0].shown]
            messages = with_hidden(messages, hidden_of(told, begin))
        calls = [Call(step.shown, step.action, side) for step in stretch.steps]
        rows.append(scored_row(messages, calls, tokenizer, mean=mean))
    return rows


def _length(rows: Iterable[ScoredRow]) -> int:
    return sum(int(weight) for row in rows for weight in row.weights)
