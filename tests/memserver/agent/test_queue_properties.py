"""The queue manager keeps its promises for any messages, sizes, tools and summariser failures."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from memserver.errors import ContextOverflow, ModelTimeout, ModelUnavailable
from memserver.memory import summary
from memserver.memory.extract import Count, extract
from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Call, ScriptedModel, say, shown
from tests.support.nightly import NIGHTLY, times
from tests.support.server import OneDatabase, Server, serving

RESERVED = 200
MOST_STEPS = 4
EXAMPLES, PARTS = times(30, 60), times(1, 16)

# One that is longer than half of any window, some of which a few fill it, and many small ones.
sizes = st.one_of(st.integers(1, 40), st.integers(40, 400), st.integers(1500, 4000))
actions = st.one_of(
    st.tuples(st.just("say"), sizes),
    st.tuples(st.just("import"), st.lists(sizes, min_size=1, max_size=25)),
    st.tuples(st.just("edit"), st.integers(1, 100)),
    st.tuples(st.just("jobs"), st.none()),
)
steps = st.sampled_from(["say", "say", "append", "search", "fail", "break"])
summaries = st.sampled_from(
    [
        "Notes.",
        "Long notes. " * 600,
        "",
        ModelUnavailable("down"),
        ModelTimeout("slow"),
        ContextOverflow("long"),
    ]
)


@dataclass
class World:
    """What the model does in one example, and all that the summariser read."""

    steps: list[str] = field(default_factory=lambda: ["say"])
    summaries: list[str | Exception] = field(default_factory=lambda: ["Notes."], repr=False)
    texts: int = 0
    extracted: list[str] = field(default_factory=list)
    model: ScriptedModel = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.model = ScriptedModel(self.step, summary=self.summarise, context_window=4000)

    def begin(self, does: list[str], writes: list[str | Exception]) -> None:
        self.steps, self.summaries = does, writes
        self.extracted.clear()
        self.model.seen.clear()
        self.model.writes.clear()

    def text(self, words: int) -> str:
        """A text whose first word is in no other."""
        self.texts += 1
        return f"mark{self.texts}x" + " word" * (words - 1)

    def step(self, prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Call:
        kind = self.steps[len(self.model.seen) % len(self.steps)]
        if kind == "say" or len(tools) == 1:
            return say(self.text(5))
        more = {"request_heartbeat": True}
        if kind == "search":
            return Call("recall_memory_search", {"query": "mark", **more})
        if kind == "fail":
            change = {"section": "human", "old_content": "is not there", "new_content": "y"}
            return Call("working_context_replace", {**change, **more})
        section = "human" if kind == "append" else "missing"  # which is no valid call
        return Call("working_context_append", {"section": section, "content": "x", **more})

    def summarise(self, _: Sequence[PromptMessage]) -> str | Exception:
        return self.summaries[len(self.model.writes) % len(self.summaries)]

    async def extract(self, old: str, lines: Sequence[str], limit: int, count: Count) -> str:
        self.extracted.extend(lines)
        return await extract(old, lines, limit, count)

    @property
    def reported(self) -> str:
        """All that the summariser or its stand-in was given."""
        asked = [message.text for prompt in self.model.writes for message in prompt]
        return "\n".join([*asked, *self.extracted])


@pytest.fixture(params=range(PARTS))
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(summary, "extract", made.extract)
    return made


@pytest.fixture
async def server(database: OneDatabase, world: World) -> AsyncIterator[Server]:
    limits = {"llm_max_output_tokens": RESERVED, "max_steps": MOST_STEPS}
    async with serving(database, world.model, **limits) as running:
        yield running


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=not NIGHTLY,  # other examples in each part of each night
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example(  # many short messages, which are counted in bytes, and then a long one
    window=2453,
    todo=[
        ("edit", 86),
        ("say", 176),
        ("import", [45, 40, 9, 132, 51, 1560, 2360, 399, 34, 37, 1640]),
        ("say", 1970),
        ("say", 209),
        ("import", [8, 25, 150, 307]),
        ("say", 2128),
        ("jobs", None),
    ],
    does=["search", "fail", "say", "break"],
    writes=[""],
)
@example(  # an edit from outside, after which what is in the queue no longer fits
    window=2829,
    todo=[("import", [2526, 1566]), ("say", 40), ("say", 8), ("edit", 95)],
    does=["search"],
    writes=["", "", "Long notes. " * 600],
)
@example(  # a turn that overfills the queue by itself
    window=1800,
    todo=[("say", 263)],
    does=["append", "search"],
    writes=["Long notes. " * 600],
)
@given(
    window=st.integers(1800, 4000),
    todo=st.lists(actions, min_size=1, max_size=10),
    does=st.lists(steps, min_size=1, max_size=6),
    writes=st.lists(summaries, min_size=1, max_size=6),
)
async def test_nothing_is_lost_every_prompt_fits_and_the_model_is_asked_boundedly(
    server: Server,
    world: World,
    window: int,
    todo: list[tuple[str, Any]],
    does: list[str],
    writes: list[str | Exception],
) -> None:
    todo = [*todo, ("say", 1)]  # an edit only shows in the next prompt
    world.begin(does, writes)
    agent = await server.create_agent(options={"context_window": window})
    posted = [text for action in todo for text in await act(server, world, agent, *action)]
    await server.run_jobs()
    context = await server.get(f"{agent}/context")

    stored = server.rows(
        "SELECT position, role, content FROM messages WHERE agent_id = %s ORDER BY position", agent
    )
    [(start,)] = server.rows("SELECT queue_start FROM agent_state WHERE agent_id = %s", agent)
    folded = server.rows(
        "SELECT until, evicted FROM summaries WHERE agent_id = %s ORDER BY until", agent
    )
    evicted = [row for row in stored if row[0] < start]

    # Nothing is lost: what came in stands in recall storage in its order, and what left the queue was
    # given to the summariser or to its stand-in.
    assert [content for _, role, content in stored if role == "user"] == posted
    assert all(
        content.split()[0] in world.reported
        for _, role, content in evicted
        if content and role != "system"
    )
    assert start == (folded[-1][0] if folded else 0)
    assert sum(count for _, count in folded) == len(evicted)
    # No call is without its result.
    open_calls = server.rows(
        "SELECT 1 FROM tool_calls WHERE agent_id = %s AND result IS NULL", agent
    )
    assert open_calls == []
    for seen in world.model.seen:
        for message, following in zip(seen.prompt, [*seen.prompt[1:], None], strict=True):
            if message.role == "assistant":
                assert following is not None
                assert (following.role, following.call) == ("tool", message.call)
    # Every prompt fits the agent's window, and so does what the turns and their jobs leave.
    assert all(
        size(world.model, seen.prompt, seen.tools) + RESERVED <= window for seen in world.model.seen
    )
    assert context["used"] <= window - RESERVED
    # The model is asked a bounded number of times.
    said = sum(kind == "say" for kind, _ in todo)
    assert len(world.model.seen) <= MOST_STEPS * said
    assert len(world.model.writes) <= 4 * len(evicted) + 2 * len(folded)


async def act(server: Server, world: World, agent: str, kind: str, size: Any) -> list[str]:
    """Do something; the user's messages that it posted."""
    if kind == "say":
        text = world.text(size)
        answer = await server.http.post(f"/v1/agents/{agent}/messages", json={"text": text})
        if answer.status_code != 200:
            assert answer.json()["error"]["code"] == "model_protocol_violation", answer.text
        return [text]
    if kind == "import":
        texts = [world.text(words) for words in size]
        past = [{"role": "user", "text": text} for text in texts]
        done = await server.http.post(
            f"/v1/agents/{agent}/messages/import", json={"messages": past}
        )
        assert done.status_code == 200, done.text
        return texts
    if kind == "edit":
        done = await server.http.patch(
            f"/v1/agents/{agent}/working-context/human", json={"text": "fact " * size}
        )
        assert done.status_code == 200, done.text
    else:
        await server.run_jobs()
    return []


def size(model: ScriptedModel, prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> int:
    """A prompt's tokens, as the scripted model counts: words."""
    texts = [shown(message) for message in prompt]
    around = model.message_overhead * len(prompt)
    return around + sum(len(text.split()) for text in [*texts, model.tools_text(tools)])
