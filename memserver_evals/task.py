"""What a task is: examples, a way to play one through a system, a scorer, a reward.

Evaluations and training share this shape. A task is several turns between an agent and somebody else:
a question after a long history (MSC, LoCoMo), one look-up (documents, nested key-value), or a
conversation with a simulated human (ColBench). The task owns its examples, what is said and what that
is worth; it knows nothing of memserver, models, files of a run or reports. A system is whatever
answers. Judges ask a model and are applied by the runner afterwards; scorers here are pure.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol, TypeVar, runtime_checkable

from memserver.messages import JsonObject

Scores = Mapping[str, float]
"""Named scores of one played example; higher is better, and nan is no score at all (left out of means)."""
Groups = Mapping[str, str | int]
"""What tables group examples by: `{"level": 3}`, `{"documents": 20}`, `{"category": "temporal"}`. A key
"cluster" is no column of a table: examples with the same one (questions on one conversation, say) are drawn
together when intervals are estimated."""


# --- what the system may know before it is asked


@dataclass(frozen=True, slots=True)
class Utterance:
    """One thing that was said in a session.

    `role` is the system's view: "assistant" is what the system itself (the part it plays) said.
    `id` is the data's own name of it, for evidence; `at` has a zone.
    """

    role: Literal["user", "assistant"]
    text: str
    at: datetime
    speaker: str = ""
    id: str = ""

    @property
    def spoken(self) -> str:
        """The text, under its speaker's name where there is one: a history has roles and no names."""
        return f"{self.speaker}: {self.text}" if self.speaker else self.text


Cut = Literal["whole", "tokens", "characters"]


@dataclass(frozen=True, slots=True)
class Session:
    """One earlier conversation, oldest utterance first."""

    began: datetime
    utterances: tuple[Utterance, ...]
    id: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """One passage of text that can be looked up."""

    id: str
    text: str
    title: str = ""

    @property
    def shown(self) -> str:
        """The text, under its title where it has one."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Library:
    """Documents under a name.

    Examples with a library of the same name have the same documents, so a system may take them in once;
    one that is not `shared` is one example's alone.
    """

    name: str
    documents: tuple[Document, ...]
    shared: bool = True


@dataclass(frozen=True, slots=True)
class Material:
    """What a system may know before the first turn; any part may be empty."""

    sessions: tuple[Session, ...] = ()  # oldest first, with their real times
    # documents to be looked up; a memory puts them into archival storage
    library: Library | None = None
    instructions: str = ""  # what the task asks of its systems (the form of the answer, say)
    persona: str = ""  # who the system is, where the task says so
    human: str = ""  # what is known of the other side from the start
    # for systems that put retrieved documents into the prompt: how many. None leaves it to the
    # system. A system that searches for itself takes no notice
    documents_shown: int | None = None
    # how those that were retrieved are made to fit. "whole": from the first on, as many as fit;
    # "tokens": each gets the same share of the room; "characters": the same number taken for
    # characters, as the MemGPT paper's baselines did by mistake
    documents_cut: Cut = "whole"
    # the documents to be shown, as ids in their order; they are then not retrieved. For protocols
    # that fix what the reader sees
    reading: tuple[str, ...] | None = None
    # what an oracle would search for, in order. Only the system ten-searches-pasted reads it
    look_for: tuple[str, ...] = ()
    # what is said besides the instructions to a system that has the documents in its own storage
    # and has to search there
    look_up: str = ""
    # what an agent does while it is being said counts too: the user's messages are said to it one by
    # one, in the mode `import` as well
    live: bool = False
    # who said what is asked for. Only the system copying reads it
    answers_from: Literal["assistant", "anyone"] = "anyone"

    @property
    def said(self) -> tuple[Utterance, ...]:
        """Everything that was said in the sessions, oldest first."""
        return tuple(each for session in self.sessions for each in session.utterances)


# --- a system, and what comes of asking it


@dataclass(frozen=True, slots=True)
class Exchange:
    """One prompt that went to a model and what came back.

    `prompt` is the messages of the request (OpenAI's form), `answer` the message of the reply;
    `purpose` says whose it was: answer, summary, simulator, judge.
    """

    prompt: tuple[JsonObject, ...]
    answer: JsonObject
    tokens_in: int = 0
    tokens_out: int = 0
    purpose: str = "answer"


@dataclass(frozen=True, slots=True)
class Found:
    """Something that was retrieved: the id of a document, or of an utterance where the data has one."""

    id: str
    kind: Literal["document", "utterance"] = "document"
    text: str = ""


@dataclass(frozen=True, slots=True)
class Search:
    """One search: what for, the ids of what it found; `auto`: the server made it, and not the model."""

    query: str
    found: tuple[str, ...] = ()
    auto: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    text: str  # what the other side sees
    tokens_in: int = 0  # of all prompts behind it, as the endpoint counted
    tokens_out: int = 0  # of all that was generated
    exchanges: tuple[Exchange, ...] = ()  # every prompt and answer, in order
    # what was retrieved, best first, in the order of retrieval; empty where nothing was
    found: tuple[Found, ...] = ()
    # of the history and the documents that should be in the prompt, the share (in tokens, 0 to 1)
    # that fitted; 1 where all did, None where a system doesn't work that way
    share_fitted: float | None = None
    error: str = ""  # the stable code of what went wrong, if no answer came; the text is then empty
    # of a page of results of its searches, on average; None where it made none
    page_characters: float | None = None
    # in their order; None where a system has none to make
    searches: tuple[Search, ...] | None = None


class Conversation(Protocol):
    """A conversation with a system that has begun; it remembers what was said in it."""

    async def say(self, text: str, *, at: datetime | None = None) -> Reply:
        """Say something and get the answer.

        Args:
            text: what the other side says.
            at: the time in the story at which it is said; None is right after what came before.

        A reply that failed for a reason of the model's (its error is in `Reply.error`) is an answer
        with nothing in it. An endpoint that can't be reached raises: the example is played again.
        """


class System(Protocol):
    """Whatever answers: memserver, a model with its history in the window, a policy in training."""

    @property
    def name(self) -> str:
        """How tables name it."""

    def begin(
        self, example_id: str, material: Material
    ) -> AbstractAsyncContextManager[Conversation]:
        """A new conversation, which knows the material and nothing of any other conversation."""


@dataclass(frozen=True, slots=True)
class Turn:
    said: str
    reply: Reply
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Played:
    """One example after it was played. It holds all that scoring needs, and goes through JSON.

    `outcome` is what the task found out while playing (tests passed, say), JSON values only;
    `exchanges` are those of the task's own models, such as a simulated human.
    """

    turns: tuple[Turn, ...]
    outcome: JsonObject = field(default_factory=dict)
    exchanges: tuple[Exchange, ...] = ()

    @property
    def answer(self) -> str:
        """The text of the last reply."""
        return self.turns[-1].reply.text if self.turns else ""


# --- a task


class Example(Protocol):
    """One example. Its id is stable: the same in every run on the same data."""

    @property
    def id(self) -> str:
        """Unique within the task."""


E = TypeVar("E", bound=Example)
E_contra = TypeVar("E_contra", bound=Example, contravariant=True)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a judge is asked about: was this answer right?

    `kind` chooses the judge's rule where a task has several (LongMemEval's question types).
    """

    question: str
    gold: tuple[str, ...]
    answer: str
    kind: str = ""


@runtime_checkable
class Task(Protocol[E]):
    """Examples, a way to play one, a scorer, a reward."""

    @property
    def name(self) -> str:
        """Its name on the command line."""

    @property
    def main_score(self) -> str:
        """Which of the scores the table leads with, and compare compares."""

    @property
    def group_keys(self) -> tuple[str, ...]:
        """The keys of `groups`, in the order in which tables show them."""

    @property
    def data_hash(self) -> str:
        """A hash of the data and of whatever else decides what the examples are."""

    def examples(self) -> Sequence[E]:
        """All of them, always in the same order; bad data raises before anything is played."""

    def groups(self, example: E) -> Groups:
        """Where the example belongs in tables."""

    async def play(self, example: E, system: System) -> Played:
        """Play it through a system. Chance comes from the example's id, never from the clock."""

    def score(self, example: E, played: Played) -> Scores:
        """Score what was played, from its values alone: the same scores each time."""

    def reward(self, example: E, played: Played) -> float:
        """What training is to make large, 0 to 1."""

    def claim(self, example: E, played: Played) -> Claim | None:
        """What a judge is to be asked; None where no judge is needed."""


@runtime_checkable
class Sourced(Protocol[E_contra]):
    """A task whose data says where the answers stand."""

    def evidence(self, example: E_contra) -> frozenset[str]:
        """The ids of the utterances or documents with the answer; empty where that isn't known."""


async def ask(
    system: System,
    example_id: str,
    material: Material,
    question: str,
    *,
    at: datetime | None = None,
) -> Played:
    """Play the commonest kind of example: one question in a new conversation."""
    async with system.begin(example_id, material) as conversation:
        reply = await conversation.say(question, at=at)
    return Played((Turn(question, reply, at),))
