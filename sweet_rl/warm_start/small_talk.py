"""What needs no memory: small talk, with the untrained model's own answers to it.

Training on its own answers keeps a model's ordinary chat: it learns when to use a tool, and no new way
to talk.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path

from memserver.embeddings.base import Embedder
from memserver.errors import ProtocolViolation
from memserver.llm.openai_compatible import ModelOptions, OpenAICompatible
from memserver.messages import PromptMessage
from memserver.openai_http.endpoint import Endpoint
from memserver_evals.runs.run_folder import write_whole
from sweet_rl.progress import show_progress
from sweet_rl.warm_start.wordings import DATA, read_data

PERSONA = "You are Sam, a friendly companion. Answer in one or two short sentences."
LONGEST_REPLY = 180
MOST_TRIES = 4
HELD_OUT_SHARE = 0.2
_SENTENCE = re.compile(r"[^.!?]*[.!?]+[\"')]*\s*")
_UNWANTED_IN_PROSE = re.compile(r"[\[\]{}<>|\\]|http")
_UNWANTED = re.compile(r"language model|\bAI\b|[\[\]{}<>*#|\\]|http|\n", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Manner:
    name: str  # of its files under data/: the answers that are kept, and the sentences whose answers are not
    system: str | None  # the system message; None leaves it to the chat template
    max_tokens: int  # of an answer
    keep: Callable[[str], str]  # what is kept of an answer; an empty text refuses it
    every: int = 1  # only every so many sentences are asked

    @property
    def kept(self) -> Path:
        return DATA / f"{self.name}.jsonl"

    @property
    def dropped(self) -> Path:
        return DATA / f"{self.name}.dropped.txt"

    @property
    def asked(self) -> Path:
        return DATA / f"{self.name}.asked.jsonl"


@dataclass(frozen=True, slots=True)
class SmallTalk:
    """One thing said, and how the untrained model answers it; empty where it gave no usable answer."""

    text: str
    reply: str
    held_out: bool


Chooser = Callable[[Sequence[SmallTalk]], Awaitable[Sequence[SmallTalk]]]


def sentences() -> list[tuple[str, bool]]:
    groups = read_data("small_talk")["group"]
    said: dict[str, bool] = {}
    for group in groups:
        words, forms = group["words"], group["sentences"]
        for at, word in enumerate(words):
            for form_at, form in enumerate(forms):
                text = form.format(x=word, X=word[:1].upper() + word[1:])
                said[text] = _is_last(at, words) or _is_last(form_at, forms)
    return list(said.items())


def load_replies(manner: "Manner | None" = None) -> list[SmallTalk]:
    return _read((manner or SHORT).kept)


def load_chatter() -> list[SmallTalk]:
    """What people say in their own words that is worth no note, often looking as if it were; with written answers."""
    return _read(DATA / "chatter.jsonl")


def small_talk(*, held_out: bool) -> list[SmallTalk]:
    """All that calls for no memory: for training, or for its tests."""
    return [each for each in (*load_replies(), *load_chatter()) if each.held_out == held_out]


async def ask(endpoint: Endpoint, model: str, manner: Manner, *, at_once: int = 32) -> None:
    """Have the model answer every sentence that it was not asked before, whatever became of the answer.

    The answers wait for `settle`. A run that broke off resumes.
    """
    known = {talk.text for path in (manner.kept, manner.asked) for talk in _read(path)}
    known.update(_lines(manner.dropped))
    answered: list[str] = []
    waiting = [each for each in sentences()[:: manner.every] if each[0] not in known]
    turn = asyncio.Semaphore(at_once)
    chat = OpenAICompatible(
        endpoint, ModelOptions(model=model, mode="text", body={"temperature": 0.7})
    )
    async with aclosing(chat):
        with (
            manner.asked.open("a", encoding="utf-8") as file,
            show_progress(manner.name) as progress,
        ):

            async def ask_one(text: str, *, held_out: bool) -> None:
                async with turn:
                    reply = await _reply(chat, text, manner)
                answered.append(text)
                progress(len(answered), len(waiting))
                file.write(_line(SmallTalk(text, reply, held_out)))
                file.flush()

            try:
                async with asyncio.TaskGroup() as tasks:
                    for text, held_out in waiting:
                        tasks.create_task(ask_one(text, held_out=held_out))
            except ExceptionGroup as group:
                raise group.exceptions[0] from group


async def settle(manner: Manner, choose: Chooser | None = None) -> int:
    """Keep the answers of a run that has come to its end, and remember which were dropped.

    Doing it again, also after it broke off, changes nothing.
    """
    answered = {talk.text: talk for talk in _read(manner.asked)}
    usable = [talk for talk in answered.values() if talk.reply]
    chosen = await choose(usable) if choose is not None else usable
    kept = {talk.text: talk for talk in [*_read(manner.kept), *chosen]}
    dropped = dict.fromkeys(
        [*_lines(manner.dropped), *(text for text in answered if text not in kept)]
    )
    write_whole(manner.dropped, "".join(f"{text}\n" for text in dropped))
    write_whole(manner.kept, "".join(map(_line, kept.values())))
    manner.asked.unlink(missing_ok=True)
    return len(kept)


def _read(path: Path) -> list[SmallTalk]:
    return [SmallTalk(**json.loads(line)) for line in _lines(path)]


def _lines(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [line for line in text.split("\n") if line]


def _line(talk: SmallTalk) -> str:
    return json.dumps(asdict(talk), ensure_ascii=False) + "\n"


async def _reply(chat: OpenAICompatible, text: str, manner: Manner) -> str:
    """The first answer to keep in a few tries, or an empty one."""
    prompt = [PromptMessage("user", text)]
    if manner.system is not None:
        prompt.insert(0, PromptMessage("system", manner.system))
    for _ in range(MOST_TRIES):
        try:
            written = await chat.write(prompt, max_tokens=manner.max_tokens)
        except ProtocolViolation:  # it wrote nothing; any other error is not the sentence's fault
            continue
        if reply := manner.keep(written.text):
            return reply
    return ""


def trimmed(text: str) -> str:
    """The first one or two whole sentences, if they are short and clean; else an empty text."""
    text = text.strip().strip('"').replace("\n\n", "\n").split("\n")[0]
    kept = ""
    for sentence in _SENTENCE.findall(text)[:2]:
        if len(kept + sentence) > LONGEST_REPLY:
            break
        kept += sentence
    kept = kept.strip()
    return "" if len(kept) < 2 or _UNWANTED.search(kept) else kept


def whole(text: str) -> str:
    """An answer that came to its end and holds plain prose; else an empty text."""
    text = text.strip()
    return text if text.endswith((".", "!", "?")) and not _UNWANTED_IN_PROSE.search(text) else ""


SHORT = Manner("replies", PERSONA, 80, trimmed)
"""As an agent answers in send_message."""
PLAIN = Manner("plain", None, 160, whole, every=4)
"""Without a task, so that plain chat stays what it is."""


def _is_last(at: int, values: Sequence[str]) -> bool:
    return at >= len(values) - max(1, int(len(values) * HELD_OUT_SHARE))


async def on_topic(talk: Sequence[SmallTalk], embedder: Embedder) -> list[SmallTalk]:
    """The better half: the answers that are nearest in meaning to what was said."""
    if not talk:
        return []
    said = await embedder.embed([each.text for each in talk])
    replies = await embedder.embed([each.reply for each in talk])
    near = [
        sum(a * b for a, b in zip(*pair, strict=True)) for pair in zip(said, replies, strict=True)
    ]
    least = sorted(near)[len(near) // 2]
    return [each for each, nearness in zip(talk, near, strict=True) if nearness >= least]
