"""Asking the parts of an evaluation that run as servers of their own: the recorder and the oracle."""

import httpx2

from memserver.errors import ModelUnavailable

TIMEOUT = 600


async def ask_part(url: str, method: str, path: str, body: object = None) -> httpx2.Response:
    """Its answer.

    Raises:
        ModelUnavailable: there was none, or it was an error. The example has to be played again, since what
            was asked for may be lost with the answer.
    """
    try:
        async with httpx2.AsyncClient(timeout=TIMEOUT, trust_env=False) as http:
            answer = await http.request(method, f"{url}{path}", json=body)
            answer.raise_for_status()
    except httpx2.HTTPError as error:
        raise ModelUnavailable(
            f"A part of the evaluation at {url} doesn't answer: {error}"
        ) from error
    return answer
