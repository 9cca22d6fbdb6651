"""What needs no memory: small talk, with the untrained model's own answers to it.

Training on its own answers keeps a model's ordinary chat: it learns when to use a tool, and no new way
to talk.
"""

import asyncio
import json
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from memserver.embeddings.base import Embedder
from memserver.endpoint import Endpoint
from memserver.errors import ModelError
from memserver.llm.openai_compatible import OpenAICompatible
from memserver.messages import PromptMessage
from memserver.sweet_rl.warm_start.progress import Progress

DATA = Path(__file__).parent / "data"
PERSONA = "You are Sam, a friendly companion. Answer in one or two short sentences."
LONGEST_REPLY = 180
MOST_TRIES = 4
HELD_OUT_SHARE = 0.2
_SENTENCE = re.compile(r"[^.!?]*[.!?]+[\"')]*\s*")
_UNWANTED_IN_PROSE = re.compile(r"[\[\]{}<>|\\]|http")
_UNWANTED = re.compile(r"language model|\bAI\b|[\[\]{}<>*#|\\]|http|\n", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Manner:
    """How the untrained model is asked.

    Attributes:
        file: where its answers are kept, under data/.
        system: the system message; None leaves it to the chat template.
        max_tokens: of an answer.
        keep: what is kept of an answer; an empty text refuses it.
        every: only every so many sentences are asked.
    """

    file: str
    system: str | None
    max_tokens: int
    keep: Callable[[str], str]
    every: int = 1


@dataclass(frozen=True, slots=True)
class SmallTalk:
    """One thing said, and how the untrained model answers it."""

    text: str
    reply: str
    held_out: bool


def sentences(path: Path = DATA / "small_talk.toml") -> list[tuple[str, bool]]:
    """All that is said, each with whether it is held out for tests."""
    groups = tomllib.loads(path.read_text(encoding="utf-8"))["group"]
    said: dict[str, bool] = {}
    for group in groups:
        words, forms = group["words"], group["sentences"]
        for at, word in enumerate(words):
            for form_at, form in enumerate(forms):
                text = form.format(x=word, X=word[:1].upper() + word[1:])
                said[text] = _is_last(at, words) or _is_last(form_at, forms)
    return list(said.items())


def load_replies(manner: "Manner | None" = None) -> list[SmallTalk]:
    """The answers that `write_replies` kept; by default the short ones."""
    path = DATA / (manner or SHORT).file
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [SmallTalk(**json.loads(line)) for line in lines]


async def write_replies(
    endpoint: Endpoint, model: str, manner: Manner, *, at_once: int = 32
) -> int:
    """Have the model answer sentences, and keep what is whole and clean; returns how many it kept.

    What is in the file already stays, so that a run that broke off goes on.

    Raises:
        ModelError: the endpoint can't be asked.
    """
    known = {talk.text for talk in load_replies(manner)}
    asked = sentences()[:: manner.every]
    waiting = [(text, held_out) for text, held_out in asked if text not in known]
    chat = OpenAICompatible(endpoint, model=model, mode="text", body={"temperature": 0.7})
    turn = asyncio.Semaphore(at_once)
    path = DATA / manner.file
    with path.open("a", encoding="utf-8") as file, Progress("replies", len(waiting)) as progress:

        async def ask(text: str, *, held_out: bool) -> None:
            async with turn:
                reply = await _reply(chat, text, manner)
            progress.step()
            if reply:
                talk = {"text": text, "reply": reply, "held_out": held_out}
                file.write(json.dumps(talk, ensure_ascii=False) + "\n")
                file.flush()

        await asyncio.gather(*(ask(text, held_out=held_out) for text, held_out in waiting))
    await chat.aclose()
    return len(load_replies(manner))


async def _reply(chat: OpenAICompatible, text: str, manner: Manner) -> str:
    """The first answer to keep in a few tries, or an empty one."""
    prompt = [PromptMessage("user", text)]
    if manner.system is not None:
        prompt.insert(0, PromptMessage("system", manner.system))
    for _ in range(MOST_TRIES):
        try:
            written = await chat.write(prompt, max_tokens=manner.max_tokens)
        except ModelError as error:
            if error.code == "model_unavailable":
                raise
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


SHORT = Manner("replies.jsonl", PERSONA, 80, trimmed)
"""As an agent answers in send_message."""
PLAIN = Manner("plain.jsonl", None, 160, whole, every=4)
"""Without a task, so that plain chat stays what it is."""


def _is_last(at: int, values: Sequence[str]) -> bool:
    return at >= len(values) - max(1, int(len(values) * HELD_OUT_SHARE))


def save_replies(talk: Sequence[SmallTalk]) -> None:
    """Let these be the short answers."""
    lines = (json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in talk)
    (DATA / SHORT.file).write_text("".join(lines), encoding="utf-8")


async def on_topic(talk: Sequence[SmallTalk], embedder: Embedder) -> list[SmallTalk]:
    """The better half: the answers that are nearest in meaning to what was said."""
    said = await embedder.embed([each.text for each in talk])
    replies = await embedder.embed([each.reply for each in talk])
    near = [
        sum(a * b for a, b in zip(*pair, strict=True)) for pair in zip(said, replies, strict=True)
    ]
    least = sorted(near)[len(near) // 2]
    return [each for each, nearness in zip(talk, near, strict=True) if nearness >= least]
