"""What is learnt from memory episodes: the data of each method, rows of tokens, and losses that fall."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sweet_rl.intervals import t_interval
from sweet_rl.memory_episodes import data
from sweet_rl.memory_episodes.records import (
    Asked,
    Drawn,
    Episode,
    EpisodeLine,
    Executed,
    Outcome,
    Preferred,
    Step,
    Task,
    stretches,
)
from sweet_rl.memory_episodes.report import difference
from sweet_rl.memory_episodes.tasks import hidden_of
from sweet_rl.oracle import agreement
from sweet_rl.trajectories import ChatMessage, Ranked
from tests.support.lazy import lazy

adapters = lazy("sweet_rl.adapters")
examples = lazy("sweet_rl.memory_episodes.examples")
fitting = lazy("sweet_rl.warm_start.fitting")
ranking = lazy("sweet_rl.memory_episodes.ranking")
learning = lazy("sweet_rl.memory_episodes.learning")
rows = lazy("sweet_rl.memory_episodes.examples")
tiny_model = lazy("tests.sweet_rl.tiny_model")
torch = lazy("torch")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
NOW = datetime(2026, 1, 2, 9, tzinfo=UTC)
CUP = "My cup cost two pounds."
SECRET = "two pounds"
SAY, NOTE = '{"tool": "say", "arguments": {}}', '{"tool": "note", "arguments": {"a": "cup"}}'


def a_task() -> Task:
    lines = [
        EpisodeLine(speaker="user", text=text, at=NOW) for text in (CUP, "It rained.", "It snowed.")
    ]
    asked = Asked(
        text="What did it cost?", answer=SECRET, evidence=CUP, kind="fact", line=0, at=NOW
    )
    never = asked.model_copy(update={"text": "And the plate?", "evidence": "", "line": None})
    return Task(
        id="t", topic="cups", side="train", window=1280, lines=tuple(lines), asked=(asked, never)
    )


def messages(*texts: str, system: str = "You are Sam.") -> tuple[ChatMessage, ...]:
    shown: list[ChatMessage] = [{"role": "system", "content": system}]
    for number, text in enumerate(texts):
        role = "assistant" if number % 2 else "user"
        shown.append(
            {"role": role, "content": f"[2026-01-02 09:00] {text}" if number % 2 == 0 else text}
        )  # type: ignore[typeddict-item]
    return tuple(shown)


def an_episode(sample: int, reward: float, *, task: str = "t", action: str = SAY) -> Episode:
    """Two stretches: the second begins after the cup has left the queue."""
    prompts = [messages(CUP), messages(CUP, "Oh.", "It rained."), messages("It snowed.")]
    steps = [
        (prompt, Step(shown=0, action=action, message=0, alert=False, tokens=10))
        for prompt in prompts
    ]
    return Episode(
        task=task,
        sample=sample,
        reward=reward,
        outcomes=(Outcome(answer="", right=False),),
        stretches=tuple(stretches(steps)),
        evictions=1,
        tokens=30,
    )


def ranked(advantages: tuple[float, ...], *, turn: int = 0, texts: tuple[str, ...] = ()) -> Ranked:
    calls = texts or tuple(f"call {number}" for number in range(len(advantages)))
    return Ranked(
        task="t",
        hidden="",
        turn=turn,
        messages=messages(CUP),
        candidates=calls,
        advantages=advantages,
    )


@pytest.fixture(scope="module")
def folder(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    written: Path = tiny_model.write_model(tmp_path_factory.mktemp("tiny") / "model")
    return written


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return tiny_model.tokenizer()


def test_prompts_that_only_grew_are_one_stretch_and_each_step_has_its_own_again() -> None:
    episode = an_episode(0, 1)
    assert [len(each.steps) for each in episode.stretches] == [2, 1]
    assert [prompt for prompt, _ in episode.steps] == [
        messages(CUP),
        messages(CUP, "Oh.", "It rained."),
        messages("It snowed."),
    ]


def test_the_hidden_information_says_what_is_asked_where_it_lies_and_whether_it_is_in_sight() -> (
    None
):
    task = a_task()
    before, after = (hidden_of(task, messages(text)) for text in (CUP, "It snowed."))
    assert f"What did it cost? Answer: {SECRET}." in before
    assert "message 1, the user's)" in before
    assert "(message 1, the user's, out of sight)" in after
    assert "And the plate? It is never said." in before
    noted = hidden_of(task, messages("It snowed.", system="Cup: Two pounds"))
    assert "out of sight, noted" in noted
    quoted = (
        *messages("x")[:1],
        {"role": "user", "content": "[result of s]\n[m1] user: It snowed."},
    )
    assert "out of sight" not in hidden_of(task, (*quoted, *messages(CUP)[1:]))  # type: ignore[arg-type]


def test_a_critic_is_told_the_hidden_information_and_an_actor_never(tokenizer: Any) -> None:
    plays = {(each.task, each.sample): each for each in (an_episode(0, 1), an_episode(1, 0))}
    pairs = [Preferred(task="t", better=0, worse=1)]
    told = examples.examples_of_plays(pairs, plays, tokenizer, informed={"t": a_task()}, mean=True)
    blind = examples.examples_of_plays(pairs, plays, tokenizer)
    state = Executed(
        task="t",
        hidden=hidden_of(a_task(), messages("x")),
        turn=0,
        messages=messages("x"),
        candidates=(SAY, NOTE),
    )
    actor = examples.examples_of_states(
        data.call_pairs([Ranked(**state.model_dump(exclude={"rewards"}), advantages=(1, 0))]),
        tokenizer,
    )
    texts = [text_of(one, tokenizer) for one in (told, blind, actor)]
    assert [SECRET in text.replace(CUP, "") for text in texts] == [True, False, False]
    assert [text.count("What will be asked") for text in texts] == [4, 0, 0]
    scored = examples.examples_to_score([state], tokenizer, hidden=True)
    assert "What will be asked" in text_of(scored, tokenizer)


def text_of(found: list[Any], tokenizer: Any) -> str:
    return "\n".join(tokenizer.decode(each.row.ids) for one in found for each in one.rows)


def test_pairs_of_plays_are_the_best_and_the_worst_of_a_task_that_are_far_enough_apart() -> None:
    rewards = {"t": (0.2, 1.0, 0.6), "u": (0.4, 0.6), "v": (0.2, 0.6)}
    played = [
        an_episode(sample, reward, task=task)
        for task, found in rewards.items()
        for sample, reward in enumerate(found)
    ]
    assert data.play_pairs(played, 0.4) == [
        Preferred(task="t", better=1, worse=0),
        Preferred(task="v", better=1, worse=0),
    ]
    assert [(each.task, each.sample) for each in data.kept(played, 0.6)] == [
        *(("t", 1), ("t", 2), ("u", 1), ("v", 1))
    ]


def test_a_seed_has_its_own_plays_and_rejection_fine_tuning_as_many_tokens_as_candidates_cost() -> (
    None
):
    drawn = [Drawn(episode=an_episode(sample, 1)) for sample in range(8)]
    own = [data.own_plays(drawn, 4, seed) for seed in (1, 2)]
    assert [len(each) for each in own] == [4, 4]
    assert own[0] == data.own_plays(drawn, 4, 1) != own[1]
    spent = data.tokens_of(drawn[:2])
    assert spent == 60
    assert len({each.key for each in data.matched(own[0], drawn, spent, 1)}) == 6


def test_calls_are_paired_within_a_state_the_better_half_with_the_worse() -> None:
    states = [ranked((3.0, 0.1, 2.0, 0.2)), ranked((0.02, 0.01), turn=1)]
    [found] = data.call_pairs(states, count=8, informative=0.6, seed=1)
    assert found.turn == 0
    assert found.messages == states[0].messages
    assert set(found.pairs) <= {(0, 1), (0, 3), (2, 1), (2, 3)}
    assert data.call_pairs([ranked((1.0, 0.0), texts=("same", "same"))]) == []


def test_calls_in_one_row_are_as_likely_as_each_alone(folder: Path, tokenizer: Any) -> None:
    model = adapters.load_base(folder)
    episode = an_episode(0, 1, action=NOTE)
    [example] = examples.examples_to_imitate(
        data.kept([episode], 1), {episode.key: episode}, tokenizer
    )
    with torch.no_grad():
        together = learning.scores(model, [example])
    alone = sum(
        log_probability(model, tokenizer, prompt, step.action) for prompt, step in episode.steps
    )
    assert float(together) == pytest.approx(alone, rel=1e-4)
    state = ranked((1.0, 0.0), texts=(SAY, NOTE))
    [scored] = examples.examples_to_score([state], tokenizer, hidden=False)
    with torch.no_grad():
        means = learning.scores(model, [scored]).tolist()
    for text, mean in zip(state.candidates, means, strict=True):
        tokens = len(tokenizer.encode(f"{text}<|im_end|>", add_special_tokens=False))
        whole = log_probability(model, tokenizer, state.messages, text)
        assert mean == pytest.approx(whole / tokens, rel=1e-4)


def log_probability(model: Any, tokenizer: Any, prompt: Any, text: str) -> float:
    """Of a call to a prompt, as the chat template writes it."""
    before = tokenizer.apply_chat_template(list(prompt), tokenize=False, add_generation_prompt=True)
    start, whole = (
        tokenizer(each, add_special_tokens=False, return_tensors="pt").input_ids
        for each in (before, f"{before}{text}<|im_end|>")
    )
    with torch.no_grad():
        found = model(whole).logits[0, :-1].log_softmax(-1)
    likely = found.gather(1, whole[0, 1:, None])[start.shape[1] - 1 :]
    return float(likely.sum())


def two_sides(tokenizer: Any) -> list[Any]:
    """A state with a better and a worse call, and a task with a better and a worse play."""
    state = data.call_pairs([ranked((1.0, 0.0), texts=(SAY, NOTE))])
    plays = {(0): an_episode(0, 1, action=SAY), 1: an_episode(1, 0, action=NOTE)}
    by_key = {each.key: each for each in plays.values()}
    return [
        *examples.examples_of_states(state, tokenizer),
        *examples.examples_of_plays([Preferred(task="t", better=0, worse=1)], by_key, tokenizer),
    ]


def test_the_gradient_in_parts_is_that_of_the_whole_loss(
    folder: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, loss = two_sides(tokenizer), learning.PreferenceSettings(beta=0.3, nll=0.5)
    gradients = []
    for tokens in (50, 100_000):
        monkeypatch.setattr("sweet_rl.memory_episodes.learning.TOKENS_AT_ONCE", tokens)
        model = adapters.to_train(adapters.load_base(folder), None, rank=2, seed=1)
        referred = learning.with_references(model, batch)
        loss.step(model, referred)
        gradients.append([each.grad for each in model.parameters() if each.grad is not None])
    model = adapters.to_train(adapters.load_base(folder), None, rank=2, seed=1)
    loss.of(learning.scores(model, referred), referred).backward()
    gradients.append([each.grad for each in model.parameters() if each.grad is not None])
    assert any(bool(each.abs().sum() > 0) for each in gradients[-1])
    for one, other, whole in zip(*gradients, strict=True):
        assert torch.allclose(one, whole, rtol=1e-3, atol=1e-6)
        assert torch.allclose(other, whole, rtol=1e-3, atol=1e-6)


def test_losses_fall_and_the_better_side_is_preferred(
    folder: Path, tokenizer: Any, tmp_path: Path
) -> None:
    schedule = fitting.Schedule(steps=12, batch=2, rate=2e-2)
    for name, how in (
        ("preference", learning.PreferenceSettings(beta=1.0)),
        ("imitation", learning.Imitation()),
    ):
        model = adapters.to_train(adapters.load_base(folder), None, rank=2, seed=1)
        batch = learning.with_references(model, two_sides(tokenizer))
        first = how.step(model, batch)
        model.zero_grad()
        fitting.fit(model, batch, tmp_path / name, schedule, how)
        assert how.step(model, batch) < first
        if name == "preference":
            with torch.no_grad():
                gained = learning.scores(model, batch).tolist()
            known = [value for each in batch for value in each.references]
            own = [one - other for one, other in zip(gained, known, strict=True)]
            assert own[0] > own[1]
            assert own[2] > own[3]


def executed(*rewards: tuple[float, ...], turn: int = 0) -> Executed:
    calls = tuple(f"call {number}" for number in range(len(rewards)))
    return Executed(
        task="t", hidden="", turn=turn, messages=messages(CUP), candidates=calls, rewards=rewards
    )


def test_critics_are_compared_with_what_executing_calls_came_to_within_states() -> None:
    states = [executed((0.2, 0.4), (1.0, 0.8)), executed((0.4, 0.4), (0.2, 0.2), turn=1)]
    right, half = [
        ranking.ranked(states, scores) for scores in ([(0, 1), (1, 0)], [(0, 1), (0, 1)])
    ]
    assert [each.oracle for each in right] == [pytest.approx((0.3, 0.9)), pytest.approx((0.4, 0.2))]
    assert [agreement(each)["agreement"] for each in (right, half)] == [1.0, 0.5]
    assert ranking.raised(right, half).mean == 0.5
    assert ranking.raised(right[:0], half[:0]) is None
    assert ranking.ceiling(states)["agreement"] == 1.0


def test_two_arms_differ_by_seeds_with_a_t_interval_and_by_topics() -> None:
    found = t_interval([0.1, 0.2, 0.3, 0.2, 0.2])
    assert (found.mean, found.low, found.high) == pytest.approx((0.2, 0.1122, 0.2878), abs=1e-3)
    topics = {"a": "x", "b": "x", "c": "y"}
    one = {seed: {"a": 0.6, "b": 0.8, "c": 1.0 - seed / 100} for seed in (1, 2)}
    other = {seed: {"a": 0.4, "b": 0.4, "c": 0.8, "d": 1.0} for seed in (1, 2, 3)}
    differs = difference(one, other, topics)
    assert differs is not None
    assert differs.by_seed == pytest.approx((0.79 / 3, 0.78 / 3))
    assert difference(one, {7: {}}, topics) is None
