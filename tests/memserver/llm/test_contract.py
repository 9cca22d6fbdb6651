"""Every chat model against the one contract; the HTTP ones over a real socket."""

from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from memserver.llm.admission import FairSemaphore, QueuedModel, SharedEndpoint
from memserver.llm.openai_compatible import Mode, ModelOptions, OpenAICompatible
from memserver.messages import PromptMessage, ToolSpec
from memserver.openai_http.circuit import Circuit
from memserver.openai_http.endpoint import Endpoint
from memserver.testing.scripted import Rule, ScriptedModel, Step, Writer
from memserver.testing.scripted_server import Abilities, create_scripted_app
from tests.support.http_app import serving
from tests.support.model_contract import Make, ModelContract, they_talked


class Switch:
    """A rule and a writer that a test exchanges while the server runs."""

    rule: Rule
    writer: Writer = staticmethod(they_talked)

    def __call__(self, prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
        return self.rule(prompt, tools)

    def write(self, prompt: Sequence[PromptMessage]) -> Step:
        return self.writer(prompt)


@pytest.fixture(scope="module")
def switch() -> Switch:
    return Switch()


@pytest.fixture(scope="module")
def url(switch: Switch) -> Iterator[str]:
    with serving(create_scripted_app(switch, context_window=4096, summary=switch.write)) as base:
        yield f"{base}/v1"


def scripted(rule: Rule, writer: Writer = they_talked) -> ScriptedModel:
    return ScriptedModel(rule, summary=writer, context_window=4096)


class TestScripted(ModelContract):
    @pytest.fixture
    def make(self) -> Make:
        return scripted


class TestQueuedModel(ModelContract):
    @pytest.fixture
    def make(self) -> Make:
        shared = SharedEndpoint(FairSemaphore(1), Circuit())
        return lambda rule, writer=they_talked: QueuedModel(
            scripted(rule, writer), shared, "tenant"
        )


class OverHttp(ModelContract):
    mode: Mode

    @pytest.fixture
    async def make(self, switch: Switch, url: str) -> AsyncIterator[Make]:
        made: list[OpenAICompatible] = []

        def make(rule: Rule, writer: Writer = they_talked) -> OpenAICompatible:
            switch.rule, switch.writer = rule, writer
            made.append(
                OpenAICompatible(Endpoint(url, max_retries=0), ModelOptions(mode=self.mode))
            )
            return made[-1]

        yield make
        for model in made:
            await model.aclose()


class TestNativeTools(OverHttp):
    mode = "tools"


class TestJsonSchema(OverHttp):
    mode = "json_schema"


class TestText(OverHttp):
    mode = "text"


class TestAuto(OverHttp):
    mode = "auto"


class Bare(OverHttp):
    """An endpoint with neither native tools nor answers held to a schema."""

    abilities: Abilities
    mode = "auto"

    @pytest.fixture(scope="class")
    @classmethod
    def url(cls, switch: Switch) -> Iterator[str]:
        app = create_scripted_app(
            switch, context_window=4096, abilities=cls.abilities, summary=switch.write
        )
        with serving(app) as base:
            yield f"{base}/v1"


class TestAutoWhereBothAreRefused(Bare):
    abilities = Abilities("refused", "refused")


class TestAutoWhereBothAreIgnored(Bare):
    abilities = Abilities("ignored", "ignored")


class TestAutoWhereToolsAreRefused(Bare):
    abilities = Abilities(tools="refused")
