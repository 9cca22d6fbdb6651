"""The pages that stand in every page's head, in their order."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NavigationLink:
    """A page in the navigation: its address below /console, and its name."""

    path: str
    name: str


PAGES = (
    NavigationLink("agents", "Agents"),
    NavigationLink("models", "Models"),
    NavigationLink("runs", "Runs"),
    NavigationLink("keys", "Keys"),
    NavigationLink("operations", "Operations"),
)
