"""Pictures by matplotlib, which is an extra."""

from io import BytesIO
from typing import Any

from memserver.errors import SetupError, install_extra


def make_figure(**options: Any) -> Any:  # noqa: ANN401 - matplotlib has no types
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise SetupError("Pictures need matplotlib.", hint=install_extra("train")) from error
    return Figure(**options)


def as_png(figure: Any) -> bytes:  # noqa: ANN401
    content = BytesIO()
    figure.savefig(content, dpi=130, format="png", metadata={"Software": None})
    return content.getvalue()
