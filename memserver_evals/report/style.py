"""The one style of all pictures of evaluations and trainings."""

from io import BytesIO
from typing import Any

from memserver.errors import SetupError, install_extra

COLOURS = (
    "#2456a6", "#d1702a", "#2f8f5b", "#8a4fa0", "#b03a48", "#5f6b7a",
    "#a08a1f", "#2b9aa8", "#6fa3e0", "#c58fd0", "#3d3d3d", "#98b83c",
)  # fmt: skip
STYLE = {
    "font.size": 10,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa3ad",
    "axes.labelcolor": "#2b3138",
    "grid.color": "#e3e7eb",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "xtick.color": "#2b3138",
    "ytick.color": "#2b3138",
    "text.color": "#2b3138",
    "svg.hashsalt": "memserver",
}


def make_figure(**options: Any) -> Any:  # noqa: ANN401 - matplotlib has no types
    """A figure in the style. Raises SetupError without matplotlib."""
    try:
        from matplotlib import rcParams  # noqa: PLC0415 - of an extra
        from matplotlib.figure import Figure  # noqa: PLC0415 - the same
    except ImportError as error:
        raise SetupError("Pictures need matplotlib.", hint=install_extra("eval")) from error
    rcParams.update(STYLE)
    return Figure(**options)


def as_png(figure: Any) -> bytes:  # noqa: ANN401
    """The figure's bytes; without matplotlib's version the same picture has the same ones."""
    content = BytesIO()
    figure.savefig(content, dpi=130, format="png", metadata={"Software": None})
    return content.getvalue()
