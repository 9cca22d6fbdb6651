"""What a message of a synthetic user is about, and the conversation that it is part of."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from memserver.agent.options import PromptOrder
from sweet_rl.warm_start.corpus import Question
from sweet_rl.warm_start.facts import Fact
from sweet_rl.warm_start.values import Split


@dataclass(frozen=True, slots=True)
class Chat:
    """Small talk."""

    reply: str


@dataclass(frozen=True, slots=True)
class Tell:
    """One or more lasting facts; `then` is asked in the same breath."""

    facts: tuple[Fact, ...]
    then: "Ask | None" = None


@dataclass(frozen=True, slots=True)
class Change:
    """A fact has another value now."""

    old: Fact
    new: Fact


@dataclass(frozen=True, slots=True)
class Forget:
    """A fact shall be forgotten."""

    fact: Fact


@dataclass(frozen=True, slots=True)
class Ask:
    """A question about a fact; the agent was never told it where `known` is false."""

    fact: Fact
    known: bool = True


@dataclass(frozen=True, slots=True)
class AskAll:
    """What the agent knows of the person."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class AskDay:
    """What was said on a day."""

    day: str
    words: str


@dataclass(frozen=True, slots=True)
class Note:
    """A list with its topic."""

    topic: str
    title: str
    items: str

    def filled(self, form: str) -> str:
        """A form of words with this note in it."""
        upper = self.topic[:1].upper() + self.topic[1:]
        return form.format(t=self.topic, T=upper, v=self.title, l=self.items)


@dataclass(frozen=True, slots=True)
class Keep:
    """A note to be kept in archival storage."""

    note: Note


@dataclass(frozen=True, slots=True)
class LookUp:
    """A question for a note."""

    note: Note


@dataclass(frozen=True, slots=True)
class Converse:
    """Talk that holds lasting facts among other things.

    Attributes:
        reply: what is said to it.
        notes: what a good memory writes down of it; `old -> new` changes a note.
    """

    reply: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Remember:
    """A question about what was said.

    Attributes:
        question: with its answer, and the sentence that holds it.
        speaker: whose sentence that is; empty where nothing was said of it.
        notes: of the turn with that sentence, which may hold the answer too.
    """

    question: Question
    speaker: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Consult:
    """A question that documents in archival storage answer.

    Attributes:
        question: with its answer, and the sentence that holds it.
        quoted: the answer is wanted as ANSWER and DOCUMENT.
    """

    question: Question
    quoted: bool


@dataclass(frozen=True, slots=True)
class Follow:
    """A question for the last of some values, each of which is the key of the next."""

    chain: tuple[str, ...]


Intent = (
    Chat
    | Tell
    | Change
    | Forget
    | Ask
    | AskAll
    | AskDay
    | Keep
    | LookUp
    | Converse
    | Remember
    | Consult
    | Follow
)


@dataclass(frozen=True, slots=True)
class Saying:
    """One message of the user."""

    text: str
    intent: Intent
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """A message from before the conversation."""

    role: Literal["user", "assistant"]
    text: str
    at: datetime
    fact: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class User:
    """A whole conversation, and the agent that it is held with.

    Attributes:
        past: what was said before, and is imported.
        sayings: what the user says.
        window: tokens of the agent.
        order: of its prompt.
        persona: its system prompt, if not the server's.
        task: a section of the working context that says what the agent is there for.
        documents: in its archival storage.
        auto_recall: whether the server searches for it.
    """

    past: tuple[Past, ...]
    sayings: tuple[Saying, ...]
    window: int
    order: PromptOrder
    persona: str | None
    task: str = ""
    documents: tuple[str, ...] = ()
    auto_recall: bool = False

    @property
    def memorable(self) -> frozenset[str]:
        """What was said that no note holds and that is no small talk."""
        return frozenset(each.text for each in self.past if each.fact)

    @property
    def lasting(self) -> tuple[tuple[str, str], ...]:
        """What was said that is worth a note, with the note as it stands at the end of the past."""
        now: dict[str, tuple[str, str]] = {}
        for each in self.past:
            for note in each.notes:
                old, arrow, new = note.partition(" -> ")
                now.pop(old, None)
                now[new if arrow else note] = (each.text, new if arrow else note)
        return tuple(now.values())

    @property
    def has_times(self) -> bool:
        """Whether what the user says has times of its own."""
        return any(each.at is not None for each in self.sayings)


@dataclass(frozen=True, slots=True)
class Holdout:
    """What a conversation is made of: its side of the values, kinds and wordings.

    Attributes:
        values: training or test.
        kinds: the kinds that are held out, or the others.
        wording: the sentences that are held out, or the others.
    """

    values: Split = "train"
    kinds: bool = False
    wording: bool = False


TRAINING = Holdout()
HELD_OUT = {
    "values": Holdout("test"),
    "wordings": Holdout("test", wording=True),
    "kinds": Holdout("test", kinds=True),
}
"""Three tests, each harder by one thing than training."""
