"""A sampler as a system that plays tasks: the policy that is trained, or one that was."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

from memserver.errors import ModelError
from memserver_evals.systems.failing import failed_reply
from memserver_evals.task import Material, Reply
from sweet_rl.agent_turns import cleaned
from sweet_rl.sampling.samplers import Sampler, Sampling, seed_of
from sweet_rl.trajectories import ChatMessage


@dataclass(frozen=True)
class Policy:
    """Plays each example in its own conversation; its chance is of the seed, the example and the turn."""

    name: str  # how tables name it
    sampler: Sampler  # of its messages
    sampling: Sampling = field(default_factory=Sampling)  # how they are drawn
    seed: int = 0  # another one plays the same example otherwise

    @asynccontextmanager
    async def begin(self, example_id: str, material: Material) -> AsyncIterator["PolicyTalk"]:
        yield PolicyTalk(
            self, example_id, [ChatMessage(role="system", content=material.instructions)]
        )


@dataclass
class PolicyTalk:
    policy: Policy
    example_id: str
    messages: list[ChatMessage]

    async def say(self, text: str, *, at: datetime | None = None) -> Reply:  # noqa: ARG002 - the protocol's
        """Say something and draw the answer. A chat that is too long for the model has an empty answer."""
        policy = self.policy
        self.messages.append({"role": "user", "content": text})
        seed = seed_of(policy.seed, self.example_id, len(self.messages))
        try:
            chat = tuple(cleaned(self.messages))
            [drawn] = await policy.sampler.sample(chat, 1, policy.sampling, seed)
        except ModelError as error:
            return failed_reply(error)
        [answer] = cleaned([ChatMessage(role="assistant", content=drawn.text)])
        self.messages.append(answer)
        return Reply(answer["content"], drawn.read, drawn.tokens)
