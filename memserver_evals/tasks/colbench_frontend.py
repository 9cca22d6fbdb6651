"""Makes the frontend task; apart, because it needs an extra."""

from memserver.prompts import Prompts
from memserver_evals.colbench.frontend.examples import load_frontend
from memserver_evals.colbench.frontend.humans import LayoutViewer, ModelViewer, Viewer
from memserver_evals.colbench.frontend.layouts import VIEWPORT, generate_layouts
from memserver_evals.colbench.frontend.rendering import Renderer
from memserver_evals.colbench.frontend.similarity import ClipSimilarity, ImageStatistics
from memserver_evals.colbench.frontend.task import FrontendTask
from memserver_evals.tasks.colbench_setup import Setup
from memserver_evals.tasks.registry import TaskOptions


def frontend_task(setup: Setup, options: TaskOptions) -> FrontendTask:
    """Raises InvalidInput: the file can't be used; SetupError: there is no CLIP in the folder."""
    viewer: Viewer | None = ModelViewer(setup.part, Prompts()) if setup.part else None
    if setup.path is None:
        generated = generate_layouts(setup.split, setup.each, seed=options.seed)
        examples = tuple(task.example for task in generated)
        viewer = viewer or LayoutViewer()
        renderer = Renderer(VIEWPORT)
    else:
        examples = load_frontend(setup.path)
        renderer = Renderer()
    clip = options.extra.get("clip")
    return FrontendTask(
        examples,
        renderer,
        ClipSimilarity(clip) if clip else ImageStatistics(),
        None if setup.single else viewer,
        Prompts(),
        max_turns=setup.turns,
        owns=(renderer, *setup.owned),
    )
