"""The untrained model's answers: asked once, chosen once, however often and wherever a run broke off."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from memserver.errors import ModelError, ModelNotFound, ModelUnavailable
from memserver.messages import PromptMessage
from memserver.openai_http.endpoint import Endpoint
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted_server import create_scripted_app
from sweet_rl.warm_start import small_talk
from sweet_rl.warm_start.small_talk import (
    LONGEST_REPLY,
    PLAIN,
    SHORT,
    SmallTalk,
    ask,
    load_chatter,
    load_replies,
    on_topic,
    sentences,
    settle,
)
from tests.support.http_app import serving

SAID = [(f"It is {word}.", word == "late") for word in ("raining", "sunny", "cold", "warm", "late")]


class Untrained:
    """Answers about most things; of the cold it says nothing usable, and it may be away."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = 100

    def __call__(self, prompt: Sequence[PromptMessage]) -> str | Exception:
        text = prompt[-1].text
        if self.answers == 0:
            return ModelUnavailable("away")
        self.answers -= 1
        self.asked.append(text)
        return "{" if "cold" in text else f"Yes: {text}" if "n" in text else "Who knows."


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(small_talk, "DATA", tmp_path)
    monkeypatch.setattr(small_talk, "sentences", lambda: SAID)
    return tmp_path


async def run(model: Untrained, name: str = "small") -> int:
    app = create_scripted_app(lambda *_: "", model=name, summary=model)
    with serving(app) as url:
        await ask(Endpoint(f"{url}/v1", "", 60, max_retries=0), "small", SHORT, at_once=1)
    embedder = HashingEmbedder()
    return await settle(SHORT, lambda talk: on_topic(talk, embedder))


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


async def test_a_second_run_asks_nothing_and_changes_nothing(data: Path) -> None:
    model = Untrained()
    kept = await run(model)
    first = files(data)
    assert await run(again := Untrained()) == kept
    assert files(data) == first
    assert again.asked == []
    assert set(first) == {"replies.jsonl", "replies.dropped.txt"}
    dropped = first["replies.dropped.txt"].splitlines()
    assert "It is cold." in dropped
    assert sorted([*dropped, *(talk.text for talk in load_replies())]) == sorted(dict(SAID))
    assert {talk.text for talk in load_replies()} == {"It is raining.", "It is sunny."}


async def test_a_run_that_broke_off_goes_on_and_comes_to_the_same(data: Path) -> None:
    model = Untrained()
    model.answers = 2
    with pytest.raises(ModelError):
        await run(model)
    assert load_replies() == []
    model.answers = 100
    await run(model)
    assert sorted(set(model.asked)) == sorted(dict(SAID))
    assert len([text for text in model.asked if "cold" not in text]) == len(SAID) - 1
    broken_off = files(data)
    (data / "replies.jsonl").unlink()
    (data / "replies.dropped.txt").unlink()
    await run(Untrained())
    assert files(data) == broken_off


async def test_a_model_that_is_not_there_is_no_reason_to_drop_a_sentence(data: Path) -> None:
    with pytest.raises(ModelNotFound):
        await run(Untrained(), name="another")
    await run(model := Untrained())
    assert sorted(set(model.asked)) == sorted(dict(SAID))


async def test_new_sentences_are_asked_and_the_older_answers_stay(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(Untrained())
    before = load_replies()
    more = [("It is foggy.", False), ("It is windy.", False)]
    monkeypatch.setattr(small_talk, "sentences", lambda: [*SAID, *more])
    await run(model := Untrained())
    assert model.asked == [text for text, _ in more]
    assert load_replies()[: len(before)] == before
    assert all(isinstance(talk, SmallTalk) for talk in load_replies())


@pytest.mark.parametrize("manner", [SHORT, PLAIN])
def test_of_every_sentence_of_ours_it_is_known_what_became_of_it(manner: small_talk.Manner) -> None:
    kept = [talk.text for talk in load_replies(manner)]
    dropped = manner.dropped.read_text(encoding="utf-8").splitlines()
    asked = [text for text, _ in sentences()[:: manner.every]]
    assert sorted([*kept, *dropped]) == sorted(asked)


def test_chatter_is_in_words_of_its_own_and_some_of_it_is_held_out() -> None:
    chatter = load_chatter()
    assert len(chatter) > 900
    assert 0.05 < sum(each.held_out for each in chatter) / len(chatter) < 0.25
    assert len({each.text.lower() for each in chatter}) == len(chatter)
    assert max(Counter(" ".join(each.text.split()[:4]).lower() for each in chatter).values()) <= 3
    assert all(3 <= len(each.reply) <= LONGEST_REPLY for each in chatter)


@pytest.mark.parametrize("held_out", [True, False])
def test_small_talk_for_tests_is_none_that_is_learnt(held_out: bool) -> None:
    found = small_talk.small_talk(held_out=held_out)
    assert {each.held_out for each in found} == {held_out}
    assert not {each.text for each in found} & {
        each.text for each in small_talk.small_talk(held_out=not held_out)
    }
