"""Agents without a model, for generated pages: one that fixes what it hears, and one that doesn't listen."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, cast

from memserver_evals.colbench.frontend.layouts import Layout, Sidebar
from memserver_evals.task import Material, Reply

_COLOUR = re.compile(r"The (background of the page|header|footer|cards) should be (\w+);")


@dataclass(frozen=True, slots=True)
class LayoutAgent:
    listens: bool = True  # whether it fixes what it hears

    @property
    def name(self) -> str:
        return "oracle" if self.listens else "zero-shot"

    @asynccontextmanager
    async def begin(
        self,
        example_id: str,
        material: Material,
    ) -> AsyncIterator["LayoutTalk"]:
        yield LayoutTalk(self.listens)


@dataclass
class LayoutTalk:
    listens: bool
    _layout: Layout = field(default_factory=Layout)

    async def say(self, text: str, *, at: datetime | None = None) -> Reply:
        if self.listens:
            self._layout = fixed(self._layout, text)
        return Reply(f"OUTPUT:\n{self._layout.page_text()}")


def fixed(layout: Layout, said: str) -> Layout:
    if found := _COLOUR.search(said):
        part = {"background of the page": "page", "cards": "card"}.get(found[1], found[1])
        changed: dict[str, Any] = {part: found[2]}
        return replace(layout, **changed)
    if found := re.search(r"There should be (\d+) cards", said):
        return replace(layout, cards=int(found[1]))
    if found := re.search(r"a sidebar on the (left|right)", said):
        return replace(layout, sidebar=cast("Sidebar", found[1]))
    return replace(layout, sidebar="none") if "There should be no sidebar" in said else layout
