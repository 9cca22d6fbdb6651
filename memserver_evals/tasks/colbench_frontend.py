"""Makes the frontend task; apart, because it needs an extra."""

from collections.abc import Sequence
from pathlib import Path

from memserver.prompts import Prompts
from memserver_evals.colbench.chat import PartModel
from memserver_evals.colbench.closing import Closes
from memserver_evals.colbench.frontend.examples import load_frontend
from memserver_evals.colbench.frontend.humans import LayoutViewer, ModelViewer, Viewer
from memserver_evals.colbench.frontend.layouts import VIEWPORT, generate_layouts
from memserver_evals.colbench.frontend.rendering import Renderer
from memserver_evals.colbench.frontend.similarity import ClipSimilarity, ImageStatistics
from memserver_evals.colbench.frontend.task import FrontendTask


def frontend_task(  # noqa: PLR0913 - all named
    path: Path | None,
    *,
    part: PartModel | None,
    single: bool,
    split: str,
    count: int,
    seed: int,
    turns: int,
    clip: str | None,
    owned: Sequence[Closes],
) -> FrontendTask:
    """The task, of a file or generated.

    Raises InvalidInput: the file can't be used; SetupError: there is no CLIP in the folder.
    """
    viewer: Viewer | None = ModelViewer(part, Prompts()) if part else None
    if path is None:
        examples = tuple(task.example for task in generate_layouts(split, count, seed=seed))
        viewer = viewer or LayoutViewer()
        renderer = Renderer(VIEWPORT)
    else:
        examples = load_frontend(path)
        renderer = Renderer()
    return FrontendTask(
        examples,
        renderer,
        ClipSimilarity(clip) if clip else ImageStatistics(),
        None if single else viewer,
        Prompts(),
        max_turns=turns,
        owns=(renderer, *owned),
    )
