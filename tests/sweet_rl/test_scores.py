"""What a critic says of turns and candidates, and what is made of it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from memserver.errors import InvalidInput
from sweet_rl.agent_turns import AgentTurns, cleaned, rendered
from sweet_rl.pairs import trajectory_pairs, with_hidden
from sweet_rl.plans import EpochSchedule, PreferencePlan, ScorePlan
from sweet_rl.trajectories import Candidates, Ranked, Trajectory, read_file, write_file
from tests.support.lazy import lazy
from tests.sweet_rl.conversations import chat, some_trajectories

adapters = lazy("sweet_rl.adapters")
peft = lazy("peft")
preferences = lazy("sweet_rl.training")
ranking = lazy("sweet_rl.scores")
score_rows = lazy("sweet_rl.rows")
scores = lazy("sweet_rl.scores")
torch = lazy("torch")
transformers = lazy("transformers")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
PLAYED = some_trajectories(3)
TEXTS = ("x > 7", "x", "x < 7 or so", "Which limit is it?")


def random_adapter(base: Path, folder: Path, seed: int) -> Path:
    model = adapters.to_train(adapters.load_base(base), None, rank=4, seed=seed)
    for name, parameter in model.named_parameters():
        if ".lora_B.default." in name:
            torch.nn.init.normal_(parameter, std=0.3)
    adapters.save(model, folder, base=base.name)
    return folder


@pytest.fixture(scope="module")
def plan(tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> ScorePlan:
    folder = tmp_path_factory.mktemp("critics")
    return ScorePlan(
        tiny_base,
        random_adapter(tiny_base, folder / "critic", 1),
        random_adapter(tiny_base, folder / "reference", 2),
    )


def states() -> list[Candidates]:
    return [
        Candidates(
            task=one.task,
            hidden=one.hidden,
            sample=one.sample,
            turn=one.turns - 1,
            messages=one.before(one.turns - 1),
            candidates=TEXTS,
        )
        for one in PLAYED
    ]


def log_probs(
    plan: ScorePlan, adapter: Path | None, played: Trajectory, *, hidden: bool
) -> Iterator[list[float]]:
    """For each turn its tokens' log-probabilities, from whole logits."""
    model = adapters.load_base(plan.base)
    if adapter is not None:
        model = peft.PeftModel.from_pretrained(model, str(adapter))
    tokenizer = transformers.AutoTokenizer.from_pretrained(plan.base)
    messages = played.messages
    if hidden:
        messages = with_hidden(messages, played.hidden)
    ids = rendered(tokenizer, cleaned(messages))
    with torch.no_grad():
        found = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
    for start, stop in AgentTurns.of(tokenizer).spans(ids):
        yield [float(found[at - 1, ids[at]]) for at in range(start, stop)]


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"normalised": False},
        {"hidden": False},
        {"reference_hidden": False},
        {"reference": None},
    ],
    ids=["as in the paper", "sums", "no hidden", "reference without hidden", "base as reference"],
)
def test_advantages_are_what_the_formula_gives(plan: ScorePlan, changed: dict[str, None]) -> None:
    used = replace(plan, **changed)
    for played, advantages in zip(PLAYED[:2], scores.score_turns(used, PLAYED[:2]), strict=True):
        own = log_probs(used, used.critic, played, hidden=used.hidden)
        before = log_probs(
            used, used.reference, played, hidden=used.hidden and used.reference_hidden
        )
        wanted = [
            (sum(one) - sum(other)) / (len(one) if used.normalised else 1)
            for one, other in zip(own, before, strict=True)
        ]
        assert len(advantages) == played.turns
        assert advantages == pytest.approx(wanted, abs=1e-4)


def test_batches_and_order_change_nothing(plan: ScorePlan) -> None:
    whole = scores.score_turns(plan, PLAYED)
    one_by_one = scores.score_turns(replace(plan, batch_tokens=1), PLAYED)
    backwards = scores.score_turns(plan, PLAYED[::-1])[::-1]
    for a, b, c in zip(whole, one_by_one, backwards, strict=True):
        assert a == pytest.approx(b, abs=1e-4)
        assert a == pytest.approx(c, abs=1e-4)
    assert list(score_rows.batches([5, 9, 1, 4], 10)) == [[1], [0, 3], [2]]


def test_a_candidate_has_the_advantage_that_it_would_have_as_a_turn(plan: ScorePlan) -> None:
    for played, state, scored in zip(
        PLAYED, states(), scores.score_turns(plan, states()), strict=True
    ):
        assert len(scored) == len(TEXTS)
        again = played.model_copy(
            update={"messages": (*state.messages, {"role": "assistant", "content": TEXTS[2]})}
        )
        [advantages] = scores.score_turns(plan, [again])
        assert scored[2] == pytest.approx(advantages[-1], abs=1e-4)


@pytest.mark.parametrize("changed", [{}, {"hidden": False, "normalised": False}])
def test_candidates_have_the_same_advantages_together_as_alone(
    plan: ScorePlan, changed: dict[str, bool]
) -> None:
    critic = scores.LoadedCritic.load(replace(plan, **changed))
    assert critic.shares
    together = scores.scores_of(critic, states())
    alone = scores.scores_of(replace(critic, shares=False), states())
    assert together == [pytest.approx(each, abs=1e-4) for each in alone]


def test_a_model_to_which_a_fork_means_something_else_has_its_candidates_alone(
    plan: ScorePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sweet_rl.rows._mask",
        lambda branches, _, dtype: torch.zeros(len(branches), 1, 1, branches.shape[1], dtype=dtype),
    )
    assert not scores.LoadedCritic.load(plan).shares


def test_a_fork_has_its_common_part_once() -> None:
    row = score_rows.forked([1, 2, 3], [[4, 5], [], [6]])
    assert row.ids == [1, 2, 3, 4, 5, 3, 3, 6]
    assert row.scored == [0, 0, 0, 1, 1, 0, 0, 1]
    assert row.branches == (0, 0, 1, 1, 1, 2, 3, 3)
    assert row.positions == (0, 1, 2, 3, 4, 2, 2, 3)
    assert row.turns == 2


def test_ranking_goes_on_where_it_stopped(
    plan: ScorePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweet_rl.scores.AT_ONCE", 4)
    write_file(tmp_path / "candidates.jsonl", states())
    files = tmp_path / "candidates.jsonl", tmp_path / "ranked.jsonl"
    assert ranking.rank(plan, *files, seconds=0) == {
        "states": 0,
        "finished": False,
        "seconds": pytest.approx(0, abs=60),
        "spread": 0.0,
        "nats": 0.0,
        "nats_99": 0.0,
        "distinct": 0.0,
    }
    ranking.rank(plan, *files)
    whole = files[1].read_text()
    files[1].write_text(whole[: len(whole) // 2])
    seen: list[tuple[int, int]] = []
    figures = ranking.rank(plan, *files, lambda done, total: seen.append((done, total)))
    assert figures["finished"]
    assert figures["distinct"] == 1
    assert figures["spread"] > 0
    assert seen == [(4, 9), (8, 9), (9, 9)]
    ranked = read_file(files[1], Ranked)
    assert [one.key for one in ranked] == [state.key for state in states()]
    for record, advantages in zip(ranked, scores.score_turns(plan, states()), strict=True):
        assert record.advantages == pytest.approx(advantages, abs=1e-4)


@pytest.mark.parametrize("loss", ["turn_mean", "regression"])
def test_a_trained_critic_is_as_right_when_it_scores_as_in_its_training(
    tiny_base: Path, tmp_path: Path, loss: str
) -> None:
    pairs = trajectory_pairs(some_trajectories(4))
    write_file(tmp_path / "pairs.jsonl", pairs)
    figures = preferences.train_preferences(
        PreferencePlan(
            tiny_base,
            tmp_path / "pairs.jsonl",
            tmp_path / "critic",
            loss=loss,
            beta=1,
            hidden=True,
            held_out=tmp_path / "pairs.jsonl",
            schedule=EpochSchedule(steps=6, batch=4, rate=1e-2),
        )
    )
    plan = ScorePlan(tiny_base, tmp_path / "critic" / "adapter")
    played = [
        Trajectory(
            task=pair.task,
            hidden=pair.hidden,
            messages=(*pair.prompt, *said),
            answer="",
            reward=0,
        )
        for pair in pairs
        for said in (pair.chosen, pair.rejected)
    ]
    sums = [sum(turns) for turns in scores.score_turns(plan, played)]
    margins = [a - b for a, b in zip(sums[::2], sums[1::2], strict=True)]
    accuracy = sum((margin > 0) + 0.5 * (margin == 0) for margin in margins) / len(pairs)
    assert accuracy == figures["held_out_accuracy"] > 0.5
    assert sum(margins) / len(pairs) == pytest.approx(figures["held_out_margin"], rel=0.05)
    [first, *_] = scores.score_turns(plan, some_trajectories(1))
    assert len(first) == 2


def test_a_critic_that_is_not_there_is_named(plan: ScorePlan, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no adapter"):
        scores.score_turns(replace(plan, critic=tmp_path), PLAYED)


def test_hidden_information_is_put_before_the_instructions_and_nowhere_else() -> None:
    talk = chat("I want f.", "Which limit?")
    told = with_hidden(talk, "def f(x): return x > 7")
    assert "def f(x): return x > 7" in told[0]["content"]
    assert told[0]["content"].endswith("\n\n" + talk[0]["content"])
    assert told[1:] == list(talk[1:])
