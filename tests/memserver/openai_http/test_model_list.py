"""The list of an endpoint's models is read in every shape, and what can't be read is none."""

import json

import pytest

from memserver.errors import ModelError, ModelRejected, ModelUnavailable
from memserver.openai_http.circuit import Circuit
from tests.memserver.openai_http.scripted_server import CLOSE, OK, Scripted, asking, refusal, whole

A, B = {"id": "a", "max_model_len": 9}, {"id": "b"}


@pytest.mark.parametrize(
    ("listed", "cards"),
    [
        ({"object": "list", "data": [A, B]}, [A, B]),
        ([A, B], [A, B]),
        ({"data": []}, []),
        ({"models": [{"name": "a", "model": "a"}]}, [{"id": "a", "name": "a", "model": "a"}]),
        ({"models": [{"name": "models/a"}]}, [{"id": "models/a", "name": "models/a"}]),
        ({"models": [{"name": "x"}], "data": [A]}, [A]),
        ({"data": ["a"]}, [{"id": "a"}]),
        ({"data": [A, None, 3, {"id": 7}, {}]}, [A]),
        (None, None),
        ({"data": None}, None),
        ({"data": {"a": 1}}, None),
        ({"data": [None]}, None),
        ({"error": "Unexpected endpoint or method. (GET /v1/models)"}, None),
        ("a", None),
        (3, None),
    ],
)
@pytest.mark.parametrize("checked", [False, True])
async def test_a_list_is_read_in_every_shape(listed: object, cards: object, checked: bool) -> None:
    async with asking(Scripted(whole(json.dumps(listed)))) as client:
        assert await (client.check() if checked else client.models()) == cards


NO_LIST = [
    whole("<html><title>Hi</title>", "text/html"),
    whole(""),
    whole('{"data": ['),
    refusal(403, {"error": {"message": "Missing scopes: api.model.read"}}),
    refusal(404, {}),
    refusal(405, {"detail": "Method Not Allowed"}),
    refusal(429, {}),
]


@pytest.mark.parametrize("answer", [*NO_LIST, refusal(500, {}), refusal(503, {})])
async def test_an_endpoint_without_a_list_has_none(answer: bytes) -> None:
    server = Scripted(answer)
    async with asking(server, retries=3) as client:
        assert await client.models() is None
    assert server.requests == 1


@pytest.mark.parametrize("answer", NO_LIST)
async def test_a_check_of_an_endpoint_without_a_list_closes_the_circuit(answer: bytes) -> None:
    circuit = Circuit(failures=1)
    async with asking(Scripted(CLOSE, answer, OK), retries=0, circuit=circuit) as client:
        with pytest.raises(ModelUnavailable):
            await client.post("/x", b"{}")
        assert await client.check() is None
        assert await client.post("/x", b"{}") == {"a": 1}


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize(
    ("answer", "kind"), [(refusal(401, {}), ModelRejected), (CLOSE, ModelUnavailable)]
)
async def test_a_key_that_is_refused_and_a_lost_connection_are_reported(
    answer: bytes, kind: type[ModelError], checked: bool
) -> None:
    # aiohttp itself repeats a GET once
    async with asking(Scripted(answer, answer), retries=0) as client:
        with pytest.raises(kind):
            await (client.check() if checked else client.models())


async def test_a_check_reports_a_server_that_fails() -> None:
    async with asking(Scripted(refusal(500, {})), retries=0) as client:
        with pytest.raises(ModelUnavailable, match="500"):
            await client.check()


@pytest.mark.parametrize("answer", [whole('{"data": []}'), refusal(500, {}), CLOSE])
async def test_the_list_says_nothing_of_whether_the_models_answer(answer: bytes) -> None:
    circuit = Circuit(failures=2)
    again = [CLOSE] if answer == CLOSE else []  # aiohttp itself repeats a GET once
    server = Scripted(refusal(500, {}), answer, *again, refusal(500, {}))
    async with asking(server, retries=0, circuit=circuit) as client:
        for ask in (client.post("/x", b"{}"), client.models(), client.post("/x", b"{}")):
            try:
                await ask
            except ModelError:
                continue
    assert circuit.is_open
