"""Nested key-value: a key whose value may be a key itself, up to four times (MemGPT, section 3.2.2).

140 pairs of UUIDs; at level n the value of the asked key leads over n further keys. The pairs are an
example's documents, one each. The data is a file of chains over pairs of its own (in the form of
lost-in-the-middle's, whose pairs these are), or it is generated, which needs no file.
"""

import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from uuid import UUID

from pydantic import Field
from typing_extensions import override

from memserver.errors import InvalidInput
from memserver_evals.data.reading import Record, Text, bad_place, read_lines, read_object
from memserver_evals.data.source import find_file
from memserver_evals.task import (
    Claim,
    Document,
    Groups,
    Library,
    Material,
    Played,
    Scores,
    System,
    ask,
)
from memserver_evals.tasks.registry import ReadTask, TaskEntry, TaskOptions, refuse_unknown

NAME = "nested-kv"
CHAINS, PAIRS = "nested_kv.jsonl", "nested_kv_base.json"
LEVELS = range(5)
INSTRUCTIONS = (
    "The documents are pairs of a key and its value. The person names a key. Find its value. If that value "
    "is itself the key of another pair, find that pair's value, and so on, until a value is no key. Answer "
    "with that last value only."
)
LOOK_UP = (
    "The pairs are in your archival storage, one a passage, and nowhere else: search it for the key. Then search "
    "for the value that you found, since it may be a key too, and keep searching so until you have searched for "
    "a value and no pair has it as its key. Answer only then."
)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class KvExample:
    id: str
    level: int  # how many values on the way are keys themselves
    pairs: tuple[tuple[str, str], ...]  # all pairs, in the order in which they are shown
    # the asked key, the keys on the way, and the last value, which is the answer
    chain: tuple[str, ...]

    @property
    def answer(self) -> str:
        return self.chain[-1]


class _Chain(Record):
    id: Text
    nesting_level: int = Field(ge=0)
    indices: tuple[int, ...] = Field(min_length=1)
    query_key: Text
    answer: Text


class _Pairs(Record):
    kv_pairs: tuple[tuple[str, str], ...] = Field(min_length=2)


def _hash(examples: Sequence[KvExample]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr((example.id, example.pairs, example.chain)).encode())
    return digest.hexdigest()[:16]


class NestedKv(ReadTask[KvExample]):
    name = NAME
    main_score = "accuracy"
    group_keys = ("level",)

    def __init__(self, examples: Sequence[KvExample]) -> None:
        super().__init__(examples, _hash(examples))

    @override
    def groups(self, example: KvExample) -> Groups:
        return {"level": example.level}

    @override
    async def play(self, example: KvExample, system: System) -> Played:
        documents = tuple(
            Document(str(number), f'"{key}": "{value}"')
            for number, (key, value) in enumerate(example.pairs, 1)
        )
        material = Material(
            library=Library(f"{NAME}-{example.id}", documents, shared=False),
            instructions=INSTRUCTIONS,
            look_up=LOOK_UP,
        )
        question = f'What is the value at the end of the key "{example.chain[0]}"?'
        return await ask(system, example.id, material, question)

    def evidence(self, example: KvExample) -> frozenset[str]:
        keys = {key: str(number) for number, (key, _) in enumerate(example.pairs, 1)}
        return frozenset(keys[key] for key in example.chain[:-1])

    @override
    def score(self, example: KvExample, played: Played) -> Scores:
        """Whether the value was found.

        `accuracy`: the answer names it, and besides it none but keys on the way; `contained`: it is
        somewhere in the answer.
        """
        named = set(_UUID.findall(played.answer.lower()))
        contained = example.answer in named
        alone = contained and named <= set(example.chain)
        return {"accuracy": float(alone), "contained": float(contained)}

    @override
    def reward(self, example: KvExample, played: Played) -> float:
        return self.score(example, played)["accuracy"]

    @override
    def claim(self, example: KvExample, played: Played) -> Claim | None:
        return None


def generate(seed: int, *, each: int = 30, pairs: int = 140) -> list[KvExample]:
    """Made-up look-ups, `each` of every level, every one with its own chain and order of the pairs."""
    if not 6 <= pairs <= 100_000 or each < 1:
        raise InvalidInput("A look-up needs at least 6 pairs, and there must be one.")
    base = random.Random(f"{seed} pairs")
    drawn = [(_uuid(base), _uuid(base)) for _ in range(pairs)]
    examples: list[KvExample] = []
    for level in LEVELS:
        for number in range(each):
            chance = random.Random(f"{seed} {level} {number}")
            indices = chance.sample(range(pairs), level + 1)
            made = _example(f"gen_{seed}_l{level}_{number:02}", drawn, indices)
            order = list(made.pairs)
            chance.shuffle(order)
            examples.append(KvExample(made.id, level, tuple(order), made.chain))
    return examples


def load(folder: Path) -> list[KvExample]:
    """The look-ups of the files in a folder.

    Raises BadData: a file is missing or damaged, or says what can't be; it names the file and the place.
    """
    pairs = read_object(find_file(folder, [PAIRS]), _Pairs).kv_pairs
    path = find_file(folder, [CHAINS])
    chains = read_lines(path, _Chain, key=lambda chain: chain.id)
    examples: list[KvExample] = []
    for number, chain in enumerate(chains, 1):
        example = _example(chain.id, pairs, chain.indices) if _fits(chain, pairs) else None
        if example is None or (example.level, example.chain[0], example.answer) != (
            chain.nesting_level,
            chain.query_key,
            chain.answer,
        ):
            what = f"level, query_key and answer are not what its indices give in {PAIRS}"
            raise bad_place(path, f"line {number}", what)
        examples.append(example)
    return examples


def make(options: TaskOptions) -> NestedKv:
    refuse_unknown(options, ENTRY)
    if (folder := options.data_or_generated()) is not None:
        return NestedKv(load(folder))
    each, pairs = options.number("each", 30), options.number("pairs", 140)
    return NestedKv(generate(options.seed, each=each, pairs=pairs))


ENTRY = TaskEntry(
    name=NAME,
    summary="find a key's value, which may be a key itself, 0 to 4 times",
    make=make,
    needs=(f"{CHAINS} and {PAIRS}, or nothing (generated)",),
    material=frozenset({"documents"}),
    options={
        "source": "file or generated; without a data folder it is generated",
        "each": "generated look-ups for each level (30)",
        "pairs": "pairs in each look-up that is generated (140)",
    },
)


def _example(name: str, pairs: Sequence[tuple[str, str]], indices: Sequence[int]) -> KvExample:
    """The pairs with a chain laid through those of the indices."""
    changed = list(pairs)
    for here, following in pairwise(indices):
        changed[here] = (changed[here][0], pairs[following][0])
    chain = (*(pairs[index][0] for index in indices), pairs[indices[-1]][1])
    return KvExample(name, len(indices) - 1, tuple(changed), chain)


def _fits(chain: _Chain, pairs: Sequence[tuple[str, str]]) -> bool:
    indices = chain.indices
    return len(set(indices)) == len(indices) and all(0 <= each < len(pairs) for each in indices)


def _uuid(chance: random.Random) -> str:
    return str(UUID(int=chance.getrandbits(128), version=4))
