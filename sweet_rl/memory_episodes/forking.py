"""Forks: an agent is copied, another call is made where one was made, and the episode is played to its end.

The copy is an agent file in memory, taken before the message was said. So the message is said again to the copy, and
the calls before the one in question are made again; they have the same results, so the prompt is the same, which is
checked. The original has no part in it.
"""

import asyncio
from dataclasses import replace
from io import BytesIO
from itertools import count
from random import Random
from uuid import UUID

from memserver.agent_files.archive import ArchiveReader
from memserver.agent_files.export import Contents, Export
from memserver.agent_files.ingest import AgentImporter, Imported, ImportOptions
from memserver.agent_files.tool_grants import ToolGrants
from memserver.llm.base import Reply
from memserver.llm.wire import call_as_json
from memserver.storage.database import Transaction
from sweet_rl.memory_episodes.playing import TENANT, Play, Player, Stage, State
from sweet_rl.memory_episodes.records import Drawn, Executed, Task
from sweet_rl.memory_episodes.tasks import hidden_of
from sweet_rl.trajectories import Record

_names = count()


class CallDraws(Record):
    count: int = 8  # calls for each state, the one that was made among them
    # of the user's messages, chosen by chance; in a chosen one each call is a state, unless `execute`
    share: float = 1.0
    # play every different call to the end, for one state of each chosen message
    execute: bool = False
    continuations: int = 2  # times that each is played to the end
    seed: int = 0  # of the chance


async def play(
    stage: Stage, task: Task, sample: int, *, name: str, draws: CallDraws | None = None
) -> Drawn:
    played = await Play.begin(stage, task, name)
    states: list[Executed] = []
    try:
        chance = Random(f"{draws.seed if draws else 0} {task.id} {sample}")
        for place in range(played.length):
            is_answered = place >= len(task.lines) or task.lines[place].speaker == "user"
            if draws is not None and is_answered and chance.random() < draws.share:
                states += await _drawn(played, place, sample, draws, chance)
            else:
                await played.do(place)
        return Drawn(episode=played.episode(sample), states=tuple(states))
    finally:
        await played.end()


async def _drawn(
    played: Play, place: int, sample: int, draws: CallDraws, chance: Random
) -> list[Executed]:
    player, first = played.player, len(played.player.steps)
    saved = await export_copy(played.stage, played.agent) if draws.execute else b""
    before, violations = len(played.outcomes), player.violations
    player.draw, player.states = draws.count, []
    await played.do(place)
    states, player.draw = player.states, 1
    found = [
        _state(played.task, sample, first + number, state) for number, state in enumerate(states)
    ]
    if not draws.execute:
        return found
    if player.violations > violations:
        return []  # a reply that was no call can't be made again, and the prompt shows that it was
    chosen = chance.randrange(len(found))
    rewards = await executed(
        replace(played, outcomes=played.outcomes[:before]),
        saved,
        place,
        states[: chosen + 1],
        draws,
    )
    return [found[chosen].model_copy(update={"rewards": rewards})]


async def executed(
    played: Play, saved: bytes, place: int, states: list[State], draws: CallDraws
) -> tuple[tuple[float, ...], ...]:
    """What episodes come to that continue by each reply of the last of these states."""
    texts = [call_as_json(reply.call) for reply in states[-1].replies]
    different = dict(zip(texts, states[-1].replies, strict=True))
    begun = [state.replies[0] for state in states[:-1]]
    found = await asyncio.gather(
        *(
            _fork(played, saved, place, [*begun, reply], states[-1])
            for reply in different.values()
            for _ in range(draws.continuations)
        )
    )
    size = draws.continuations
    by_text = {
        text: tuple(found[number * size : (number + 1) * size])
        for number, text in enumerate(different)
    }
    return tuple(by_text[text] for text in texts)


async def _fork(played: Play, saved: bytes, place: int, calls: list[Reply], state: State) -> float:
    stage, name = played.stage, f"{played.name}-{next(_names)}"
    player = Player(stage.policy(played.task), forced=calls)
    stage.players.add(name, player)
    fork = replace(
        played,
        name=name,
        player=player,
        agent=await import_copy(stage, saved, name),
        outcomes=list(played.outcomes),
    )
    try:
        await stage.settle()
        await fork.do(place)
        if player.states[len(calls) - 1].prompt != state.prompt:
            raise AssertionError(f"The fork {name} has another prompt than its original.")
        return await fork.finish(place + 1)
    finally:
        await fork.end()


async def export_copy(stage: Stage, agent: UUID) -> bytes:
    services, contents = stage.services, Contents(history=True, vectors=True)
    export = Export(services.database, TENANT, agent, contents, services.exports)
    return b"".join([piece async for piece in export.pieces()])


async def import_copy(stage: Stage, saved: bytes, name: str) -> UUID:
    services = stage.services
    source = ArchiveReader(BytesIO(saved), services.import_max_bytes)
    state = source.agent.state.model_copy(update={"token_scale_model": name})
    source.agent = source.agent.model_copy(update={"model": name, "state": state})
    granting = ToolGrants(services.deps.tools, services.networks)
    job = AgentImporter(services.database, services.archival, granting)
    imported = await job.run(TENANT, source, ImportOptions(name), _nothing)
    return imported.agent.id


async def _nothing(_tx: Transaction, _imported: Imported) -> None: ...


def _state(task: Task, sample: int, number: int, state: State) -> Executed:
    return Executed(
        task=task.id,
        hidden=hidden_of(task, state.prompt),
        sample=sample,
        turn=number,
        messages=state.prompt,
        candidates=tuple(call_as_json(reply.call) for reply in state.replies),
        tokens=sum(reply.usage.completion_tokens for reply in state.replies),
    )
