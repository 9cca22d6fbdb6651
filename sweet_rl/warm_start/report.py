"""The figures of a training run as a table and a picture."""

from pathlib import Path
from typing import Any

from rich.table import Table

from memserver_evals.report.style import COLOURS, as_png, make_figure
from sweet_rl.warm_start.chains import TESTS

Figures = dict[str, Any]


def table(figures: Figures) -> Table:
    """The share of right turns before and after, by test and by what the user's message was about.

    A run without tests has its title only.
    """
    shown = Table("test", "about", "untrained", "trained", title=_title(figures["training"]))
    if "trained" not in figures:
        return shown
    for test, title in _tested(figures):
        before, after = (figures[model][test] for model in ("untrained", "trained"))
        shown.add_row(title, "all", f"{before['right']:.3f}", f"{after['right']:.3f}")
        for kind, right in after["by_kind"].items():
            shown.add_row("", kind, _share(before["by_kind"].get(kind)), f"{right:.3f}")
    for name in ("nats_per_token", "json_instead_of_text", "distinct_answers", "chats"):
        before, after = (figures[model]["plain_chat"][name] for model in ("untrained", "trained"))
        shown.add_row("plain chat", name.replace("_", " "), str(before), str(after))
    return shown


def draw(figures: Figures, file: Path) -> None:
    """Draw the loss over the steps, and the share of right turns in the three tests, if there were any."""
    tested = "trained" in figures
    picture = make_figure(figsize=(10 if tested else 5, 4), layout="constrained")
    loss, *others = picture.subplots(1, 1 + tested, squeeze=False)[0]
    loss.plot(*zip(*figures["training"]["losses"], strict=True), color=COLOURS[0])
    loss.set(
        title="Loss on the agent's turns", xlabel="step", ylabel="nats per token", ylim=(0, None)
    )
    for right in others:
        _draw_tests(figures, right)
    file.write_bytes(as_png(picture))


def _draw_tests(figures: Figures, right: Any) -> None:  # noqa: ANN401 - matplotlib's axes
    tests = _tested(figures)
    for offset, model, colour in ((-0.2, "untrained", COLOURS[5]), (0.2, "trained", COLOURS[2])):
        heights = [figures[model][test]["right"] for test, _ in tests]
        bars = right.bar([x + offset for x in range(len(tests))], heights, 0.4, color=colour)
        right.bar_label(bars, fmt="%.2f")
        bars.set_label(model)
    right.set(
        title="Right turns on what was held out", ylabel="share of right turns", ylim=(0, 1.1)
    )
    right.set_xticks(range(len(tests)), [title for _, title in tests])
    right.legend(loc="upper left")


def _tested(figures: Figures) -> list[tuple[str, str]]:
    return [(test, title) for test, title in TESTS.items() if test in figures["trained"]]


def _title(training: Figures) -> str:
    return (
        f"{training['steps']} steps, {training['epochs']} epochs of {training['chains']} chains, "
        f"{training['seconds']:.0f} s on {training['device']}"
    )


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
