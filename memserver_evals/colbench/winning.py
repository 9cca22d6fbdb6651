"""The win rate of one system against another: a judge model says whose result is nearer to the one wanted.

Each pair is judged twice, with the two in either order, since judges lean to a place. A system wins a
pair when it wins both; what is split, tied or unreadable is half a win for each.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from memserver.prompts import Prompts
from memserver_evals.colbench.backend.examples import BackendExample
from memserver_evals.colbench.chat import PartModel
from memserver_evals.colbench.frontend.examples import FrontendExample
from memserver_evals.colbench.frontend.humans import as_part, without_pictures
from memserver_evals.colbench.frontend.rendering import Renderer, RenderingFailed
from memserver_evals.colbench.frontend.similarity import black_picture
from memserver_evals.task import Exchange

Choice = Literal["A", "B", "TIE"]
_CHOICE = re.compile(r"^\W*(?:answer\W+)?(A|B|TIE)\W*$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one pair.

    Attributes:
        win: of the first system: 1, 0, or 0.5.
        choices: of the judge, in the order A is the first system, A is the second; None is unreadable.
        exchanges: with the judge.
    """

    win: float
    choices: tuple[Choice | None, Choice | None]
    exchanges: tuple[Exchange, ...]


def read_choice(text: str) -> Choice | None:
    """A judge's answer: the first line that is nothing but A, B or TIE."""
    found = _CHOICE.search(text)
    if found is None:
        return None
    named = found[1].upper()
    return "A" if named == "A" else "B" if named == "B" else "TIE"


def win_rate(verdicts: Sequence[Verdict]) -> float:
    """The mean win of the first system.

    Raises:
        ValueError: there are none.
    """
    if not verdicts:
        raise ValueError("There is no verdict to take the mean of.")
    return sum(verdict.win for verdict in verdicts) / len(verdicts)


@dataclass(frozen=True, slots=True)
class CodeJudge:
    """Compares two answers of backend collaboration; its prompt is `colbench/judge_code.md`."""

    model: PartModel
    prompts: Prompts

    async def compare(self, example: BackendExample, first: str, second: str) -> Verdict:
        """Judge a pair.

        Raises:
            ModelError: the endpoint gave no answer.
        """
        judged = []
        for one, other in ((first, second), (second, first)):
            prompt = self.prompts.render(
                "colbench/judge_code.md",
                description=example.description,
                reference=example.reference,
                first=one or "(nothing)",
                second=other or "(nothing)",
            )
            judged.append(await self.model.ask([{"role": "user", "content": prompt}], "judge"))
        return _verdict(*judged)


@dataclass(frozen=True, slots=True)
class PictureJudge:
    """Compares two pages of frontend collaboration; its prompt is `colbench/judge_pictures.md`."""

    model: PartModel
    prompts: Prompts
    renderer: Renderer

    async def compare(self, example: FrontendExample, first: str, second: str) -> Verdict:
        """Judge a pair of pages (HTML; an empty text is a missing one).

        Raises:
            ModelError: the endpoint gave no answer.
            RenderingFailed: the page in mind can't be rendered.
            SetupError: there is no browser.
        """
        wanted = await self.renderer.render(example.reference, kind="reference")
        made = [await self._picture(page) for page in (first, second)]
        prompt = self.prompts.render("colbench/judge_pictures.md", description=example.description)
        judged = []
        for one, other in (made, made[::-1]):
            content = [
                {"type": "text", "text": prompt},
                *map(as_part, (wanted, one, other)),
            ]
            text, exchange = await self.model.ask([{"role": "user", "content": content}], "judge")
            judged.append((text, without_pictures(exchange)))
        return _verdict(*judged)

    async def _picture(self, page: str) -> bytes:
        if not page:
            return black_picture()
        try:
            return await self.renderer.render(page)
        except RenderingFailed:
            return black_picture()


def _verdict(straight: tuple[str, Exchange], swapped: tuple[str, Exchange]) -> Verdict:
    choices = (read_choice(straight[0]), read_choice(swapped[0]))
    win = 1.0 if choices == ("A", "B") else 0.0 if choices == ("B", "A") else 0.5
    return Verdict(win, choices, (straight[1], swapped[1]))
