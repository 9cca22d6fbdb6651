"""Plays episodes on the real server: its own prompts, tools, evictions and searches.

The user's lines are messages that the policy answers. The other side's lines are what the agent itself said, and are
imported between them. Then the questions are asked. Each play has an agent of its own, which is deleted. The policy is
watched: what it saw and called is kept, and other calls can be drawn or forced.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from uuid import UUID

from typing_extensions import override

from memserver.agent.events import EndedTurn, TurnResult
from memserver.agent.pressure import NOTHING_TO_SAVE
from memserver.agent.rendering import is_sent
from memserver.errors import ModelError, ModelUnavailable, ProtocolViolation
from memserver.llm.base import ChatModel, ModelDecorator, Reply, TextSink
from memserver.llm.call_ids import new_call_id
from memserver.llm.wire import call_as_json, json_messages
from memserver.memory.working_context import default_sections
from memserver.messages import JsonObject, PromptMessage, ToolSpec
from memserver.storage import agents
from memserver.storage.agents import NewAgent
from memserver.storage.inbox import NewMessage
from memserver.wiring.services import Services
from sweet_rl.memory_episodes.records import (
    Asked,
    Episode,
    EpisodeLine,
    Outcome,
    Step,
    Task,
    stretches,
)
from sweet_rl.memory_episodes.tasks import outcome, reward
from sweet_rl.offline_models import ModelsByName
from sweet_rl.trajectories import ChatMessage, Messages

PolicyOf = Callable[[Task], ChatModel]
"""The model that plays a task. A real one is the same for all; a scripted one knows the task."""
TENANT = "memory-episodes"
MAX_OUTPUT_TOKENS = 256
OURS = ("context_overflow", "model_protocol_violation", "turn_timeout", "model_answer_too_large")
"""How a policy can spoil a turn. The episode continues; any other failure of a turn ends the run."""


@dataclass(frozen=True, slots=True)
class State:
    prompt: Messages
    replies: tuple[Reply, ...]


class Player(ModelDecorator):
    """The policy of an episode, whose calls are kept; replies can be forced on it, or further ones drawn."""

    def __init__(self, policy: ChatModel, forced: Iterable[Reply] = ()) -> None:
        super().__init__(policy)
        self.forced = deque(forced)  # replies that are given before the policy is asked again
        self.message = 0  # place of what is being answered, among the task's lines and questions
        self.draw = 1  # replies at each call; the first is acted on
        self.steps: list[tuple[Messages, Step]] = []  # all calls, each with its prompt
        self.states: list[State] = []  # of the calls since `draw` or `forced` was set
        self.violations = 0  # replies that were no valid call

    @override
    async def call_tool(
        self,
        prompt: Sequence[PromptMessage],
        tools: Sequence[ToolSpec],
        *,
        max_tokens: int,
        on_text: TextSink | None = None,
    ) -> Reply:
        shown = tuple(map(_chat_message, json_messages(prompt)))
        if self.forced:
            given = self.forced.popleft()
            replies = [replace(given, call=replace(given.call, id=new_call_id()))]
        else:
            asked = [
                self._ask(prompt, tools, max_tokens, again=number > 0)
                for number in range(self.draw)
            ]
            replies = [reply for reply in await asyncio.gather(*asked) if reply is not None]
        acted = replies[0]
        step = Step(
            shown=len(shown),
            action=call_as_json(acted.call),
            message=self.message,
            alert=any(tool.name == NOTHING_TO_SAVE.spec.name for tool in tools),
            tokens=acted.usage.completion_tokens,
        )
        self.steps.append((shown, step))
        self.states.append(State(shown, tuple(replies)))
        return acted

    async def _ask(
        self,
        prompt: Sequence[PromptMessage],
        tools: Sequence[ToolSpec],
        max_tokens: int,
        *,
        again: bool,
    ) -> Reply | None:
        """A reply; None where a further one is no call."""
        try:
            return await self.inner.call_tool(prompt, tools, max_tokens=max_tokens)
        except ProtocolViolation:
            if again:
                return None
            self.violations += 1
            raise


def _chat_message(message: dict[str, str]) -> ChatMessage:
    return {"role": message["role"], "content": message["content"]}  # type: ignore[typeddict-item]


@dataclass(frozen=True)
class Stage:
    """A running server and the policy that plays on it."""

    services: Services  # the server's; its jobs run only when asked to
    players: ModelsByName  # its models
    policy: PolicyOf  # plays the tasks
    _jobs: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def settle(self) -> None:
        """Run what the server does after turns: compaction, indexing. Else the same play could differ."""
        async with self._jobs:
            await self.services.jobs.run_until_idle()


@dataclass
class Play:
    stage: Stage  # where it is played
    task: Task  # what is played
    name: str  # of the agent, and of its model
    player: Player  # the policy, watched
    agent: UUID  # the agent's id
    outcomes: list[Outcome] = field(default_factory=list)  # of the questions asked so far

    @classmethod
    async def begin(cls, stage: Stage, task: Task, name: str) -> "Play":
        player = Player(stage.policy(task))
        archival = stage.services.archival
        stage.players.add(name, player)
        async with stage.services.database.tenant(TENANT) as tx:
            agent = await agents.create(
                tx,
                TENANT,
                NewAgent(
                    name=name,
                    sections=default_sections(),
                    embedding_model=archival.embedder.model,
                    dimension=await archival.dimension(),
                    model=name,
                    options=_options(task),
                ),
            )
        return cls(stage, task, name, player, agent.id)

    @property
    def length(self) -> int:
        return len(self.task.lines) + len(self.task.asked)

    async def do(self, place: int) -> None:
        lines = self.task.lines
        self.player.message = place
        if place >= len(lines):
            asked = self.task.asked[place - len(lines)]
            answer = await self._say(asked)
            self.outcomes.append(outcome(asked, answer))
        elif lines[place].speaker == "user":
            await self._say(lines[place])
        else:
            await self._import(lines[place])
        await self.stage.settle()

    async def finish(self, place: int) -> float:
        for each in range(place, self.length):
            await self.do(each)
        return reward(self.outcomes)

    async def end(self) -> None:
        """Delete the agent: many episodes would fill the database."""
        self.stage.players.remove(self.name)
        async with self.stage.services.database.tenant(TENANT) as tx:
            await agents.delete(tx, self.agent)

    def episode(self, sample: int) -> Episode:
        steps = self.player.steps
        return Episode(
            task=self.task.id,
            sample=sample,
            reward=reward(self.outcomes),
            outcomes=tuple(self.outcomes),
            stretches=tuple(stretches(steps)),
            evictions=evictions([prompt for prompt, _ in steps]),
            violations=self.player.violations,
            tokens=sum(step.tokens for _, step in steps),
        )

    async def _say(self, said: EpisodeLine | Asked) -> str:
        conversation = self.stage.services.conversation
        turn = await conversation.post(TENANT, self.agent, said.text, at=said.at)
        result = await conversation.result(TENANT, turn)
        _check(result)
        return "\n\n".join(each.text for each in result.messages if is_sent(each))

    async def _import(self, line: EpisodeLine) -> None:
        conversation = self.stage.services.conversation
        message = NewMessage(line.text, 0, "assistant", line.at)
        turn = await conversation.import_messages(TENANT, self.agent, [message])
        await conversation.result(TENANT, turn)


def evictions(prompts: Sequence[Sequence[object]]) -> int:
    """How often the queue began elsewhere than in the prompt before, which is how often something left it at least."""
    begins = [prompt[1] for prompt in prompts if len(prompt) > 1]
    return sum(one != other for one, other in pairwise(begins))


def _options(task: Task) -> JsonObject:
    return {
        "context_window": task.window,
        "max_output_tokens": MAX_OUTPUT_TOKENS,
        "prompt_order": "working_context_first",
        "clock": "messages",
        "history": "compact",
        "pressure_alert": True,
    }


def _check(result: TurnResult) -> None:
    """A turn that the policy has not spoilt itself must not count as its failure."""
    error = result.ended.error if isinstance(result.ended, EndedTurn) else None
    if error is not None and error.get("code") not in OURS:
        raise ModelUnavailable(f"A turn failed: {error.get('message')}") from ModelError(str(error))
