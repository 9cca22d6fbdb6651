"""A summary without a model: the sentences that say most, in the words in which they were said.

Which sentences: those that cover the most informative words for their tokens, chosen greedily (Lin and
Bilmes, 2011: submodular coverage under a budget). Names and numbers weigh more, what is said in the first
person too, questions less. The old notes' sentences take part, so a fact stays until clearly better ones need
its room. The weights were found by `benchmarks.summary`; coverage itself does most.

Words that say nothing, and the first person, are known in English alone. In other languages coverage,
capitals and numbers decide.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

Count = Callable[[Sequence[str]], Awaitable[list[int]]]  # tokens of each text

LONGEST_SENTENCE = 240  # characters of one sentence; a longer one is cut
NAMED = 1.5  # weight of a name or a number, where a word has 1
FIRST_PERSON = 2.0
QUESTION = 0.5
USER = 1.1
KEPT = 1.3
"""Of what the old notes have. More would keep the measured facts longer (with 2.0 .66 of them, not .62), but in
a long life the notes would end as those of its first days."""
START_COST = 4
"""Tokens added to each sentence's in its value for its tokens, so that the shortest don't win always."""

_LINE = re.compile(r"(?:\[(?P<day>[^\]]*)\] )?(?:(?P<speaker>user|assistant|assistant noted): )?")
_END = re.compile(r"(?<=[.!?…])[\"')\]]*\s+|(?<=[\u3002\uff01\uff1f])|\n+")
_ENDS = tuple(".!?…\"')]\u3002\uff01\uff1f")
_WORD = re.compile(r"\w+(?:['\u2019]\w+)?")
_FIRST_PERSON = re.compile(r"\b(i|im|ive|my|mine|we|our)\b", re.IGNORECASE)
PLAIN = frozenset(
    """a about actually after again all also am an and any are as at be because been before being but by
    bye can could did do does don down for from get go going good got great had haha has have he hello
    her here hey hi him his hmm how i if im in into is it its just know like ll lol lot m maybe me more
    morning most much my nice no not now of oh ok okay on one or our out over please pretty re really
    right s see she so some still such sure t than thank thanks that the their them then there they
    thing things think this those to too up us ve very was we welcome well were what when where which
    who why will with would wow yeah yep yes you your""".split()  # noqa: SIM905 - reads better
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, after what says on which day and by whom it was said, as far as that is known."""

    head: str
    text: str


async def extract(old: str, lines: Sequence[str], limit: int, count: Count) -> str:
    """The most informative sentences of the old notes and of new lines ("[day] speaker: text"), in their order."""
    kept = _sentences(old.splitlines())
    sentences = [*kept, *_sentences(lines)]
    values = [_value(sentence, old=index < len(kept)) for index, sentence in enumerate(sentences)]
    heads = list(dict.fromkeys(sentence.head for sentence in sentences))
    counts = await count(
        [*(f"{each.text} " for each in sentences), *(f"{head}\n" for head in heads)]
    )
    head_costs = dict(zip(heads, counts[len(sentences) :], strict=True))
    # Thousands of sentences take a second, which the event loop does not have.
    chosen = await asyncio.to_thread(_choose, sentences, values, counts, head_costs, limit)
    return _render(chosen or sentences[-1:])  # the caller shortens one that is too long


def _sentences(lines: Sequence[str]) -> list[Sentence]:
    found: list[Sentence] = []
    day = ""
    for line in lines:
        start = _LINE.match(line)
        assert start is not None
        day = f"[{start['day']}] " if start["day"] else day
        head = f"{day}{start['speaker']}: " if start["speaker"] else day
        texts = (text.strip() for text in _END.split(line[start.end() :]) if text)
        found.extend(Sentence(head, _end(text[:LONGEST_SENTENCE])) for text in texts if text)
    return found


def _end(text: str) -> str:
    """With a full stop, so that it stays a sentence of its own after others."""
    return text if text.endswith(_ENDS) else f"{text}."


def _choose(
    sentences: Sequence[Sentence],
    values: Sequence[dict[str, float]],
    costs: Sequence[int],
    head_costs: dict[str, int],
    limit: int,
) -> list[Sentence]:
    """Greedily the sentence that covers most that is new for its tokens, until no further one fits."""
    covered: set[str] = set()
    heads: set[str] = set()
    chosen: set[int] = set()
    while True:
        best, most, best_cost = -1, 0.0, 0
        for index, sentence in enumerate(sentences):
            if index in chosen:
                continue
            cost = costs[index] + (0 if sentence.head in heads else head_costs[sentence.head])
            new = sum(value for word, value in values[index].items() if word not in covered)
            if cost <= limit and new / (cost + START_COST) > most:
                best, most, best_cost = index, new / (cost + START_COST), cost
        if best < 0:
            return [sentences[index] for index in sorted(chosen)]
        chosen.add(best)
        limit -= best_cost
        heads.add(sentences[best].head)
        covered.update(values[best])


def _value(sentence: Sentence, *, old: bool) -> dict[str, float]:
    """The words that say something, each with what it is worth in this sentence."""
    factor = KEPT if old else 1.0
    if _FIRST_PERSON.search(sentence.text):
        factor *= FIRST_PERSON
    if sentence.text.endswith(("?", "\uff1f")):
        factor *= QUESTION
    if sentence.head.endswith("user: "):
        factor *= USER
    found: dict[str, float] = {}
    for number, match in enumerate(_WORD.finditer(sentence.text)):
        word = match[0].lower().removesuffix("'s")
        if word in PLAIN or "'" in word:
            continue
        named = match[0][0].isdigit() or (number > 0 and match[0][0].isupper())
        found[word.rstrip("s") if len(word) > 3 else word] = factor * (NAMED if named else 1.0)
    return found


def _render(sentences: Sequence[Sentence]) -> str:
    """A line for each speaker and day, in the order in which these first spoke."""
    lines: dict[str, list[str]] = {}
    for sentence in sentences:
        lines.setdefault(sentence.head, []).append(sentence.text)
    return "\n".join(head + " ".join(texts) for head, texts in lines.items())
