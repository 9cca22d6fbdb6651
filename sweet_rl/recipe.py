"""What a run of SWEET-RL is to do: a YAML file, checked as a whole before anything runs."""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from memserver.errors import InvalidInput
from memserver.messages import JsonObject
from memserver_evals.colbench.backend.long_tasks import DesignName
from memserver_evals.colbench.backend.rules import MAX_TURNS
from memserver_evals.colbench.backend.scripted import NOISY, Habits
from sweet_rl.pairs import PairRule
from sweet_rl.plans import EpochSchedule, Loss, Precision

Share = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,40}$")]
MAIN = "sweet"
"""The variant that is the recipe as it stands."""
_OURS = (Path(), Path("recipes"))
TAKEN = frozenset({"zero-shot", "single", "warm-start", "rft", "rft-matched", "mdpo", MAIN})


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


P = TypeVar("P", bound=_Part)


class Generated(_Part):
    """Tasks that are made, with a human who needs no model."""

    kind: Literal["generated"] = "generated"
    train: PositiveInt = 1500  # tasks that are played for training; the warm start has others
    validation: PositiveInt = 200  # tasks to tune on, of combinations that training never sees
    test: PositiveInt = 1000  # tasks to report on, of others again
    seed: NonNegativeInt = 0  # another one makes other tasks
    # messages that the agent has beyond one for each hidden constant
    spare_turns: NonNegativeInt | None = 2
    design: DesignName | None = None  # of ColBench-long; None: short functions
    unseen: NonNegativeInt = 0  # of ColBench-long: further test tasks, with modules never trained


class Published(_Part):
    """Task files of ColBench, with a human that a model plays."""

    kind: Literal["published"]
    train: Path  # a file under the data folder
    test: Path  # another one
    # the first so many of `train`; None takes all that aren't for validation
    train_count: PositiveInt | None = None
    validation: PositiveInt = 200  # so many from the end of `train`
    test_count: PositiveInt | None = 1000  # the first so many of `test`; None takes all
    human: str  # the name of the model that plays the human, at the endpoint that the command names
    max_turns: PositiveInt = MAX_TURNS  # messages of the agent


class SamplingPart(_Part):
    temperature: PositiveFloat = 1.0  # of rollouts and candidates
    max_tokens: PositiveInt = 256  # of one message
    window: PositiveInt = 4096  # tokens of a whole collaboration, for the servers that are started
    at_once: PositiveInt = 128  # conversations (or states) at a time
    seeded: bool = True  # send a seed with each request; vLLM is faster without
    # of vLLM, for small models: one process can't keep a GPU busy with them. Of several GPUs each has its share.
    servers: Annotated[int, Field(ge=1, le=64)] = 1
    cache_gb: PositiveFloat = 8  # of keys and values that each server keeps
    server_options: tuple[str, ...] = ()  # further options of vLLM's servers


class Training(_Part):
    epochs: PositiveFloat = 1
    steps: PositiveInt | None = None
    batch: PositiveInt = 32
    micro_batch: PositiveInt | None = None
    rate: PositiveFloat = 1e-4
    warmup: Share = 0.03
    save_every: PositiveInt = 100
    checkpointing: bool = False
    full: bool = False  # all weights, as in the paper; else an adapter

    def schedule(self, seed: int, seconds: float | None) -> EpochSchedule:
        parts = {name: getattr(self, name) for name in Training.model_fields}
        return EpochSchedule(seed=seed, seconds=seconds, **parts)


class WarmStart(Training):
    """Teaches a base model the form of a collaboration, by dialogues of a scripted agent that errs."""

    tasks: PositiveInt = 2000  # generated ones, other than those that are played later
    samples: PositiveInt = 2  # dialogues of each
    early: Share = NOISY.early  # the chance that the agent answers too early, at each message
    idle: Share = NOISY.idle  # that it asks what doesn't help
    miscopy: Share = NOISY.miscopy  # that its answer has a wrong constant
    vague: Share = 0  # that it asks in words that the human may evade
    wrong: Share = 0  # that it asks for the other thing that the human may mean
    only_solved: bool = False  # learn the dialogues that ended well alone

    @property
    def habits(self) -> Habits:
        return Habits(self.early, self.idle, self.miscopy, self.vague, self.wrong)

    @model_validator(mode="after")
    def _is_an_adapter(self) -> Self:
        if self.full:
            raise ValueError("the warm start is an adapter: all policies begin with it")
        return self


class Collect(_Part):
    samples: PositiveInt = 4  # times that each training task is played
    # the policy that training starts from; the warm start's scripted agent; or nobody: they are in a file of published
    # trajectories
    by: Literal["policy", "scripted", "file"] = "policy"
    file: Path | None = None  # that one, under the data folder

    @model_validator(mode="after")
    def _file_if_so(self) -> Self:
        if (self.by == "file") != (self.file is not None):
            raise ValueError("by: file and the file's name belong together")
        return self


class Preference(Training):
    loss: Loss = "sum"
    beta: PositiveFloat = 0.1
    nll: Annotated[float, Field(ge=0)] = 0.01


class Trajectories(Preference):
    """One that learns from whole collaborations. `every_success`: pair each success, not the first alone."""

    every_success: bool = False
    most: PositiveInt | None = None  # pairs to learn from, drawn from all
    by_task: bool = False  # a task's pairs together: plays that several have are computed once


class Critic(Trajectories):
    """The critic. `hidden`: it sees the reference code. `held_out`: share of the tasks kept for its accuracy."""

    loss: Loss = "turn_mean"
    hidden: bool = True
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.1
    # end after so many measurements of the held-out loss without a lower one, and keep the best; None: never
    patience: PositiveInt | None = None
    measure_every: PositiveInt = 20  # steps between these


class CandidatesPart(_Part):
    share: Annotated[float, Field(gt=0, le=1)] = 0.1  # of the trajectories, the first of the file
    # next messages that are drawn for each message of the agent
    count: Annotated[int, Field(ge=2)] = 16


class Rank(_Part):
    # the critic, or the oracle of generated tasks (a ceiling)
    by: Literal["critic", "oracle"] = "critic"
    reference_hidden: bool = True  # the critic's reference sees the reference code too
    normalised: bool = True  # an advantage is a mean over tokens; else their sum
    batch_tokens: PositiveInt = 32_768  # that go through the model at once
    precision: Precision = "float32"  # of the base model while it scores


class Actor(Preference):
    """The policy, from pairs of single messages."""

    pairs: PositiveInt = 4  # of each state
    # texts: different pairs of texts, each once; indices: with replacement, as the released code draws them
    draws: Literal["texts", "indices"] = "texts"
    # how much more the better one must be worth, in standard deviations of the state's advantages. 0 as published: then
    # equally good messages are paired, too, by the critic's noise.
    margin: Annotated[float, Field(ge=0)] = 0
    # how much more in the advantages' own unit (nats a token), so that a hopeless state gives no pairs
    absolute_margin: Annotated[float, Field(ge=0)] = 0
    # share of a state's candidates that the better one is drawn from. The better half as published: where fewer are
    # good, worse ones are then chosen, too.
    top: Annotated[float, Field(gt=0, le=0.5)] = 0.5

    @property
    def rule(self) -> PairRule:
        by_index = self.draws == "indices"
        return PairRule(self.pairs, self.margin, self.absolute_margin, self.top, by_index)


class Gate(_Part):
    plays: PositiveInt = 200  # validation tasks that the policy plays
    states_of: PositiveInt = 40  # of these, in whose states messages are drawn


class Evaluate(_Part):
    samples: PositiveInt = 1  # times that each task is played as training plays, at its temperature
    greedy: bool = True  # play each task greedily, too


class Grid(_Part):
    """Plays every policy but the base itself over temperatures and spare turns, on validation and test tasks."""

    temperatures: tuple[Annotated[float, Field(ge=0)], ...] = (0, 0.3, 0.6, 1)
    spare_turns: tuple[NonNegativeInt, ...] = (1, 2, 4)
    tasks: PositiveInt = 100  # of each split, in each round
    # every policy plays a round before the next one begins, so that a run that ends early has compared all
    rounds: PositiveInt = 2


class Values(_Part):
    """What candidates are worth when the policy that drew them plays each to its end, beside what critics say."""

    states: PositiveInt = 200
    candidates: Annotated[int, Field(ge=2)] = 8  # of each state, the first
    samples: Annotated[int, Field(ge=2)] = 8  # times that each is played


class Variant(_Part):
    """One policy with other settings; what it doesn't say is as in the recipe.

    SWEET-RL's has others for `critic`, `rank` and `actor`; multi-turn DPO's for `mdpo`; rejection
    fine-tuning's for `rft`. `seeds`: None for all.
    """

    seeds: tuple[NonNegativeInt, ...] | None = None
    critic: JsonObject = Field(default_factory=dict)
    rank: JsonObject = Field(default_factory=dict)
    actor: JsonObject = Field(default_factory=dict)
    mdpo: JsonObject = Field(default_factory=dict)
    rft: JsonObject = Field(default_factory=dict)

    @property
    def of(self) -> str:
        return "mdpo" if self.mdpo else "rft" if self.rft else MAIN

    @model_validator(mode="after")
    def _of_one(self) -> Self:
        if sum(map(bool, (self.mdpo, self.rft, self.critic or self.rank or self.actor))) > 1:
            raise ValueError(
                "it can change one policy: mdpo, rft, or SWEET-RL's critic, rank and actor"
            )
        return self


class Recipe(_Part):
    name: Name
    base: str  # the folder of a causal language model, or the name of an installed one
    # each is a run of its own from the collected trajectories on
    seeds: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)] = (1, 2, 3)
    # the warm start and what it plays are made once for all seeds; else once for each
    share_data: bool = True
    share_warm_start: bool = False  # though each seed plays for itself
    rank_of_adapters: Annotated[int, Field(ge=1, le=16)] = 16  # of all LoRA adapters
    tasks: Annotated[Generated | Published, Field(discriminator="kind")] = Generated()
    sampling: SamplingPart = SamplingPart()
    warm_start: WarmStart | None = WarmStart()  # None begins with the base as it is
    collect: Collect = Collect()
    rft: Training = Training()
    mdpo: Trajectories = Trajectories()
    critic: Critic = Critic()
    candidates: CandidatesPart = CandidatesPart()
    rank: Rank = Rank()
    actor: Actor = Actor()
    rft_matched: Training | None = None  # it may also draw what SWEET-RL draws as candidates
    evaluate: Evaluate = Evaluate()
    gate: Gate | None = None
    grid: Grid | None = None
    values: Values | None = None
    kept: Mapping[
        Name, Path
    ] = {}  # adapters that were trained elsewhere, to be played with the others
    variants: Mapping[Name, Variant] = {}  # ablations by name

    @field_validator("tasks", mode="before")
    @classmethod
    def _generated_unless_said(cls, tasks: Any) -> Any:  # noqa: ANN401 - whatever stands there
        return {"kind": "generated"} | tasks if isinstance(tasks, dict) else tasks

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("a seed stands in seeds twice")
        if self.warm_start is not None and not isinstance(self.tasks, Generated):
            raise ValueError("warm_start needs generated tasks; say `warm_start: null`")
        scripted = self.collect.by == "scripted" or self.rank.by == "oracle"
        if scripted and not isinstance(self.tasks, Generated):
            raise ValueError("collect.by: scripted and rank.by: oracle need generated tasks")
        if isinstance(self.tasks, Generated) and self.tasks.unseen and self.tasks.design is None:
            raise ValueError("tasks.unseen needs a design: short functions have no modules")
        if self.collect.by == "file" and isinstance(self.tasks, Generated):
            raise ValueError("collect.by: file needs published tasks")
        if (self.grid or self.values) and not isinstance(self.tasks, Generated):
            raise ValueError("grid and values need generated tasks")
        return self

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        for name in self.kept:
            if name in TAKEN or name in self.variants:
                raise ValueError(f"kept: {name} is the name of something else")
        for name, variant in self.variants.items():
            if name in TAKEN:
                raise ValueError(f"variants: {name} is the name of something else")
            if unknown := set(variant.seeds or ()) - set(self.seeds):
                raise ValueError(f"variants.{name}.seeds: {sorted(unknown)} are not in seeds")
            self.variant(name)
        return self

    def variant(self, name: str) -> "Recipe":
        if name not in self.variants:
            return self
        changed = self.variants[name]
        parts = {
            part: _changed(getattr(self, part), getattr(changed, part), f"variants.{name}.{part}")
            for part in ("critic", "rank", "actor", "mdpo", "rft")
        }
        return self.model_copy(update=parts)

    def in_full(self) -> "Recipe":
        """The same with all weights trained after the warm start."""
        named = ("rft", "rft_matched", "mdpo", "critic", "actor")
        parts = {name: part for name in named if (part := getattr(self, name)) is not None}
        changed = {name: part.model_copy(update={"full": True}) for name, part in parts.items()}
        return self.model_copy(update=changed)

    def seeds_of(self, variant: str) -> tuple[int, ...]:
        wanted = self.variants[variant].seeds if variant != MAIN else None
        return self.seeds if wanted is None else wanted


def _changed(part: P, changes: JsonObject, place: str) -> P:
    try:
        return part.model_validate(part.model_dump() | changes)
    except ValidationError as error:
        raise ValueError(f"{place}: {_reasons(error)}") from error


def shipped_recipes() -> Path:
    packaged = Path(str(files("sweet_rl"))) / "_recipes"
    return packaged if packaged.is_dir() else Path(__file__).parents[1] / "recipes"


def find_recipe(named: Path) -> Path:
    ours = shipped_recipes() / f"{named.name.removesuffix('.yaml')}.yaml"
    return ours if not named.is_file() and named.parent in _OURS and ours.exists() else named


def load_recipe(path: Path, changes: Mapping[str, str] | None = None) -> Recipe:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        ours = ", ".join(sorted(each.stem for each in shipped_recipes().glob("*.yaml")))
        raise InvalidInput(
            f"The recipe {path} can't be read: {error.strerror}.",
            hint=f"Name a YAML file, or one of ours: {ours}.",
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is no YAML: {error}") from error
    if not isinstance(found, dict):
        raise InvalidInput(f"{path} holds no recipe: it must be a mapping.")
    for name, value in (changes or {}).items():
        _set(found, name, value)
    try:
        return Recipe.model_validate_json(json.dumps(found))
    except (ValidationError, TypeError) as error:
        raise InvalidInput(
            f"{path}: {_reasons(error)}", hint="sweet_rl/README.md has all keys."
        ) from error


def _set(found: dict[str, Any], name: str, value: str) -> None:
    *outer, last = name.split(".")
    place = found
    for part in outer:
        inner = place.setdefault(part, {})
        if not isinstance(inner, dict):
            raise InvalidInput(f"--set {name}: {part} has no parts.")
        place = inner
    try:
        place[last] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise InvalidInput(f"--set {name}: {value!r} is no YAML.") from error


def _reasons(error: ValidationError | TypeError) -> str:
    if isinstance(error, TypeError):
        return str(error)
    return "; ".join(
        ": ".join(filter(None, [".".join(map(str, each["loc"])), each["msg"]]))
        for each in error.errors()
    )
