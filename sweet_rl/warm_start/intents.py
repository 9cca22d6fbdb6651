"""What a message of a synthetic user is about, and the conversation that it is part of."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from memserver.wire.agents import PromptOrder
from sweet_rl.warm_start.corpus import CorpusQuestion
from sweet_rl.warm_start.facts import Fact, Split


@dataclass(frozen=True, slots=True)
class Chat:
    reply: str


@dataclass(frozen=True, slots=True)
class Tell:
    facts: tuple[Fact, ...]
    then: "Ask | None" = None


@dataclass(frozen=True, slots=True)
class Change:
    old: Fact
    new: Fact


@dataclass(frozen=True, slots=True)
class Forget:
    fact: Fact


@dataclass(frozen=True, slots=True)
class Ask:
    """A question about a fact; the agent was never told it where `known` is false."""

    fact: Fact
    known: bool = True


@dataclass(frozen=True, slots=True)
class AskAll:
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class AskDay:
    day: str
    words: str


@dataclass(frozen=True, slots=True)
class Note:
    topic: str
    title: str
    items: str

    def filled(self, form: str) -> str:
        upper = self.topic[:1].upper() + self.topic[1:]
        return form.format(t=self.topic, T=upper, v=self.title, l=self.items)


@dataclass(frozen=True, slots=True)
class Keep:
    note: Note


@dataclass(frozen=True, slots=True)
class LookUp:
    note: Note


@dataclass(frozen=True, slots=True)
class Converse:
    reply: str  # what is said to it
    notes: tuple[str, ...] = ()  # what a good memory writes down of it; `old -> new` changes a note


@dataclass(frozen=True, slots=True)
class Remember:
    question: CorpusQuestion  # with its answer, and the sentence that holds it
    speaker: str  # whose sentence that is; empty where nothing was said of it
    notes: tuple[str, ...] = ()  # of the turn with that sentence, which may hold the answer too


@dataclass(frozen=True, slots=True)
class Consult:
    question: CorpusQuestion  # with its answer, and the sentence that holds it
    quoted: bool  # the answer is wanted as ANSWER and DOCUMENT


@dataclass(frozen=True, slots=True)
class Follow:
    chain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Notice:
    """Something happened, which nobody said."""

    reply: str  # what is right to say; empty where it is none of the agent's business
    goal: str = ""  # what of it counts


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
    | Notice
)


@dataclass(frozen=True, slots=True)
class Saying:
    text: str
    intent: Intent
    at: datetime | None = None
    event: str = ""  # which one it is, if it is an event; its text is what the event says


@dataclass(frozen=True, slots=True)
class Past:
    role: Literal["user", "assistant"]
    text: str
    at: datetime
    fact: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class User:
    past: tuple[Past, ...]  # what was said before, and is imported
    sayings: tuple[Saying, ...]  # what the user says
    window: int  # tokens of the agent
    order: PromptOrder  # of its prompt
    persona: str | None  # its system prompt, if not the server's
    task: str = ""  # a section of the working context that says what the agent is there for
    documents: tuple[str, ...] = ()  # in its archival storage
    auto_recall: bool = False  # whether the server searches for it

    @property
    def memorable(self) -> frozenset[str]:
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
        return any(each.at is not None for each in self.sayings)


@dataclass(frozen=True, slots=True)
class Holdout:
    values: Split = "train"  # training or test
    kinds: bool = False  # the kinds that are held out, or the others
    wording: bool = False  # the sentences that are held out, or the others


TRAINING = Holdout()
HELD_OUT = {
    "values": Holdout("test"),
    "wordings": Holdout("test", wording=True),
    "kinds": Holdout("test", kinds=True),
}
"""Three tests, each harder by one thing than training."""
