"""An embedding endpoint that can be made to wait."""

import asyncio
import threading
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import JSONResponse

from memserver.testing.hashing_embedder import HashingEmbedder


@dataclass
class HoldingEmbedder:
    """An embedding endpoint that gives so many vectors, and then none until it is let go."""

    gives: int
    given: int = 0
    url: str = ""
    holds: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)

    async def answer(self, request: Request) -> JSONResponse:
        texts = (await request.json())["input"]
        if self.given + len(texts) > self.gives and not self.let_go.is_set():
            self.holds.set()
            await asyncio.to_thread(self.let_go.wait)
        self.given += len(texts)
        vectors = await HashingEmbedder(384).embed(texts)
        data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
        return JSONResponse({"data": data, "model": "hashing"})
