"""What every sampler does alike: scripted, over HTTP, and in this process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from memserver.errors import ContextOverflow, ModelUnavailable
from memserver.openai_http.client import EndpointClient
from memserver.openai_http.endpoint import Endpoint
from memserver_evals.systems.serving import served
from sweet_rl.sampling.endpoint_sampler import EndpointSampler
from sweet_rl.sampling.samplers import GREEDY, Sampler, Sampling
from sweet_rl.sampling.sources import EndpointSource
from sweet_rl.trajectories import Messages
from tests.support.lazy import lazy
from tests.sweet_rl.conversations import chat
from tests.sweet_rl.sampling_stub import SamplingStub
from tests.sweet_rl.scripted_sampler import ScriptedSampler

tiny_model = lazy("tests.sweet_rl.tiny_model")
torch = lazy("torch")
transformers = lazy("transformers")
transformers_sampler = lazy("sweet_rl.sampling.transformers_sampler")

HELLO, BYE = chat("Hello there"), chat("Good bye", "No?", "Yes.")


def words(messages: Messages, seed: int) -> str:
    return f"{messages[-1]['content']} {seed} " + " ".join(["word"] * 40)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_model.write_model(tmp_path_factory.mktemp("base"))


@asynccontextmanager
async def open_sampler(kind: str, base: Path) -> AsyncIterator[Sampler]:
    if kind == "scripted":
        yield ScriptedSampler(words)
    elif kind == "transformers":
        sampler = transformers_sampler.TransformersSampler(base, most_at_once=4)
        yield sampler
        await sampler.aclose()
    else:
        with served(SamplingStub(words).app()) as url:
            client = EndpointClient(Endpoint(f"{url}/v1"))
            yield EndpointSampler(client, "base")
            await client.aclose()


@pytest.fixture(params=["scripted", "endpoint", "transformers"])
async def sampler(request: pytest.FixtureRequest, base: Path) -> AsyncIterator[Sampler]:
    async with open_sampler(request.param, base) as opened:
        yield opened


DRAWN = Sampling(temperature=1.0, max_tokens=12)


async def test_as_many_texts_come_as_are_asked_for_and_they_differ(sampler: Sampler) -> None:
    drawn = await sampler.sample(HELLO, 6, DRAWN, seed=1)
    assert len(drawn) == 6
    assert len({each.text for each in drawn}) > 1


async def test_a_seed_gives_the_same_texts_whatever_is_drawn_beside_them(sampler: Sampler) -> None:
    alone = await sampler.sample(HELLO, 2, DRAWN, seed=7)
    beside, _, again = await asyncio.gather(
        sampler.sample(HELLO, 2, DRAWN, seed=8),
        sampler.sample(BYE, 3, Sampling(0.5, 5), seed=7),
        sampler.sample(HELLO, 2, DRAWN, seed=7),
    )
    assert [each.text for each in again] == [each.text for each in alone]
    assert [each.text for each in beside] != [each.text for each in alone]


async def test_no_temperature_gives_one_text_each_time(sampler: Sampler) -> None:
    greedy = Sampling(GREEDY.temperature, 8)
    drawn = await sampler.sample(HELLO, 3, greedy, seed=1)
    other = await sampler.sample(HELLO, 1, greedy, seed=2)
    assert len({each.text for each in [*drawn, *other]}) == 1


async def test_a_text_is_no_longer_than_it_may_be_and_its_tokens_are_counted(
    sampler: Sampler,
) -> None:
    for each in await sampler.sample(BYE, 4, Sampling(1.0, 5), seed=3):
        assert 1 <= each.tokens <= 5
        assert each.read > 0


async def test_texts_are_as_frequent_as_the_model_has_them_at_the_temperature(base: Path) -> None:
    sampler = transformers_sampler.TransformersSampler(base, most_at_once=512)
    tokenizer, model = (
        transformers.AutoTokenizer.from_pretrained(base),
        transformers.AutoModelForCausalLM.from_pretrained(base),
    )
    prompt = tokenizer.apply_chat_template(list(HELLO), tokenize=False, add_generation_prompt=True)
    ids = tokenizer.encode(prompt, add_special_tokens=False)
    likely = (model(torch.tensor([ids])).logits[0, -1].detach() / 0.5).softmax(-1)
    letters = range(ord("!"), ord("~") + 1)
    expected = sum(float(likely[tokenizer.convert_tokens_to_ids(chr(each))]) for each in letters)
    drawn = await sampler.sample(HELLO, 512, Sampling(0.5, 1), seed=5)
    found = sum(len(each.text) == 1 and ord(each.text) in letters for each in drawn) / 512
    assert 0.1 < expected < 0.9
    assert found == pytest.approx(expected, abs=4 * (expected * (1 - expected) / 512) ** 0.5)
    await sampler.aclose()


async def test_a_chat_longer_than_the_models_window_is_an_error_of_its_own(base: Path) -> None:
    sampler = transformers_sampler.TransformersSampler(base)
    with pytest.raises(ContextOverflow):
        await sampler.sample(chat("word " * 1000), 1, DRAWN, seed=0)
    assert await sampler.sample(HELLO, 1, DRAWN, seed=0)
    await sampler.aclose()


async def test_an_answer_without_texts_is_an_outage_and_not_a_crash() -> None:
    stub = SamplingStub(words, broken=True)
    with served(stub.app()) as url:
        async with EndpointSource([f"{url}/v1"]).open(None) as sampler:
            with pytest.raises(ModelUnavailable):
                await sampler.sample(HELLO, 1, DRAWN, seed=0)


async def test_each_content_of_an_adapter_is_loaded_once_under_its_own_name(tmp_path: Path) -> None:
    stub = SamplingStub(words)
    for name, weights in (("a", b"1"), ("b", b"2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text(
            '{"peft_type": "LORA", "base_model_name_or_path": "base", "r": 16}'
        )
        (tmp_path / name / "adapter_model.safetensors").write_bytes(weights)
    with served(stub.app()) as url:
        source = EndpointSource([f"{url}/v1"])
        for name in ("a", "b", "a"):
            async with source.open(tmp_path / name) as sampler:
                await sampler.sample(HELLO, 1, DRAWN, seed=0)
    asked = [body["model"] for body in stub.asked]
    assert len(stub.adapters) == 2
    assert asked[0] == asked[2] != asked[1]


async def test_all_of_a_collaboration_goes_to_one_of_several_endpoints() -> None:
    stubs = [SamplingStub(words), SamplingStub(words)]
    with served(stubs[0].app()) as one, served(stubs[1].app()) as other:
        async with EndpointSource([f"{one}/v1", f"{other}/v1"]).open(None) as sampler:
            for number in range(12):
                await sampler.sample(chat(f"Task {number}"), 1, DRAWN, seed=number)
                await sampler.sample(chat(f"Task {number}", "What?", "It"), 1, DRAWN, seed=0)
    told = [{body["messages"][1]["content"] for body in stub.asked} for stub in stubs]
    assert all(told)
    assert not told[0] & told[1]
    assert sum(len(stub.asked) for stub in stubs) == 24
