"""What is learnt from: chains of messages with the agent's turns marked, in gzipped JSON lines; and their tokens.

Tokens are ChatML, with a loss on the agent's turns alone. Knows nothing of the server, so that training needs only its
own libraries.
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

IGNORED = -100
"""The label of a token without a loss."""
TALK = "chat"
"""The kind of turn that answers small talk."""
TALK_LEARNT_WHOLE = 4
TESTS = {
    "values": "new values",
    "wordings": "and wordings",
    "kinds": "and kinds",
    "people": "new people",
    "asides": "asides of new people",
    "reading": "reading",
}
"""What is held out of a training: the names of its files, and what a report calls them."""
_SAID = '"message": "'


@dataclass(frozen=True, slots=True)
class Lesson:
    message: int  # its place among the chain's messages
    kind: str  # what the user's message is about
    goal: str  # what a right turn holds, word for word; empty where any words will do


@dataclass(frozen=True, slots=True)
class Chain:
    messages: tuple[dict[str, str], ...]
    lessons: tuple[Lesson, ...]


def write_chains(path: Path, batches: Iterable[Chain]) -> int:
    part = path.with_suffix(".part")
    written = 0
    with gzip.open(part, "wt", encoding="utf-8") as file:
        for chain in batches:
            file.write(json.dumps(asdict(chain), ensure_ascii=False) + "\n")
            written += 1
    part.replace(path)
    return written


def read_chains(path: Path) -> Iterator[Chain]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield _chain(json.loads(line))


def _chain(line: dict[str, Any]) -> Chain:
    lessons = tuple(Lesson(**lesson) for lesson in line["lessons"])
    return Chain(tuple(line["messages"]), lessons)


class Tokenizer(Protocol):
    def __call__(
        self, texts: list[str], /, *, add_special_tokens: bool
    ) -> Mapping[str, list[list[int]]]: ...


def chatml(messages: Sequence[dict[str, str]]) -> str:
    """Messages as the model's chat template writes them, ready for the agent's next turn."""
    return "".join(map(_written, messages)) + "<|im_start|>assistant\n"


Row = dict[str, list[int]]
_AT_ONCE = 500
"""Chains whose texts go to the tokenizer together: it uses all cores for many texts."""


def tokens_and_labels(chains: Iterable[Chain], tokenizer: Tokenizer) -> Iterator[Row]:
    """Each chain's `input_ids` and `labels`; a turn ends with its end token, which is learnt too.

    Of most small talk only the decision to answer it is learnt.
    """
    left = iter(chains)
    while some := [list(_parts(chain)) for chain in islice(left, _AT_ONCE)]:
        texts = [text for parts in some for text, _ in parts]
        found = iter(tokenizer(texts, add_special_tokens=False)["input_ids"])
        for parts in some:
            row: Row = {"input_ids": [], "labels": []}
            for (_, learn), ids in zip(parts, found, strict=False):
                row["input_ids"] += ids
                row["labels"] += ids if learn else [IGNORED] * len(ids)
            yield row


def _parts(chain: Chain) -> Iterator[tuple[str, bool]]:
    learnt = {lesson.message for lesson in chain.lessons}
    talk = {lesson.message for lesson in chain.lessons if lesson.kind == TALK}
    for place, message in enumerate(chain.messages):
        if place not in learnt:
            yield _written(message), False
            continue
        content = message["content"]
        decided = _decision(content) if place in talk else len(content)
        yield f"<|im_start|>{message['role']}\n", False
        yield content[:decided], True
        yield f"{content[decided:]}<|im_end|>", decided == len(content) or _is_chosen(content)
        yield "\n", False


def dataset_rows(chains: Iterable[Chain], tokenizer: Tokenizer, *, longest: int) -> list[Row]:
    rows = tokens_and_labels(chains, tokenizer)
    return [row for row in rows if len(row["input_ids"]) <= longest]


def _decision(content: str) -> int:
    """How many characters of a turn decide what is done; the rest is only what is said."""
    _, found, _ = content.partition(_SAID)
    return content.index(_SAID) + len(_SAID) if found else len(content)


def _is_chosen(content: str) -> bool:
    """One small talk in some is learnt to its end: its words outweigh everything else."""
    return zlib.crc32(content.encode()) % TALK_LEARNT_WHOLE == 0


def _written(message: dict[str, str]) -> str:
    return f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n"
