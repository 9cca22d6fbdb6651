"""Prompts and calls as tokens, each call a branch of its own off the prompt that it answers.

The prompts of a stretch only grow, so one row holds them all: the longest prompt, and each call where its prompt ends.
A call sees its own prompt and itself (the mask is `score_rows`'), and no other call. An episode has some ten stretches
and forty calls, so this is a quarter of the tokens, or less.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sweet_rl.rows import Row
from sweet_rl.trajectories import ChatMessage

Tokenizer = Any
"""Hugging Face's."""
_HEADER = "<|im_start|>assistant\n"
_END = "<|im_end|>"


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


def scored_row(
    messages: Sequence[ChatMessage], calls: Sequence[Call], tokenizer: Tokenizer, *, mean: bool
) -> ScoredRow:
    """A row."""
    made = _Growing()
    header = _ids(tokenizer, _HEADER)
    written = 0
    for number, call in enumerate(calls, 1):
        for message in messages[written : call.shown]:
            made.add(_message(tokenizer, message))
        written = call.shown
        tokens = [*_ids(tokenizer, call.text), *_ids(tokenizer, _END)]
        weight = 1 / len(tokens) if mean else 1.0
        made.branch(number, header, tokens, weight, call.side)
    return made.row()


class _Growing:
    def __init__(self) -> None:
        self._ids: list[int] = []
        self._scored: list[int] = []
        self._branches: list[int] = []
        self._positions: list[int] = []
        self._weights: list[float] = []
        self._sides: list[int] = []
        self._trunk = 0

    def add(self, ids: Sequence[int]) -> None:
        self._write(ids, 0, self._trunk)
        self._trunk += len(ids)

    def branch(
        self, number: int, header: Sequence[int], ids: Sequence[int], weight: float, side: int
    ) -> None:
        """A call behind the prompt so far; the prompt goes on as if it weren't there."""
        self._write(header, number, self._trunk)
        self._write(ids, number, self._trunk + len(header), weight, side)

    def row(self) -> ScoredRow:
        parents = (0,) * len(self._ids)
        row = Row(self._ids, self._scored, tuple(self._branches), tuple(self._positions), parents)
        return ScoredRow(row, tuple(self._weights), tuple(self._sides))

    def _write(
        self, ids: Sequence[int], branch: int, position: int, weight: float = 0.0, side: int = 0
    ) -> None:
        self._ids += ids
        self._scored += [int(weight > 0)] * len(ids)
        self._branches += [branch] * len(ids)
        self._positions += range(position, position + len(ids))
        self._weights += [weight] * len(ids)
        self._sides += [side] * len(ids)


def _message(tokenizer: Tokenizer, message: ChatMessage) -> tuple[int, ...]:
    return _ids(tokenizer, f"<|im_start|>{message['role']}\n{message['content']}{_END}\n")


@lru_cache(maxsize=50_000)
def _ids(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=False))
