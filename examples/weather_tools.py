"""Python functions as tools: `memserver serve --tools weather_tools` in this folder.

One is sync and needs nothing, one is async and keeps what it found in the agent's memory.
"""

from dataclasses import dataclass
from typing import Literal

from memserver.tools.function import AgentContext, tool


@dataclass
class Forecast:
    """What the weather will be."""

    city: str
    sky: str
    degrees: float
    unit: str


@tool
def weather(city: str, unit: Literal["C", "F"] = "C") -> Forecast:
    """The weather of a city, today.

    Args:
        city: its name, in English.
        unit: of the temperature.
    """
    celsius = 14.0
    return Forecast(city, "clear", celsius if unit == "C" else celsius * 9 / 5 + 32, unit)


@tool(timeout=10)
async def remember_city(city: str, context: AgentContext) -> str:
    """Note which city the person lives in.

    Args:
        city: where they live.
    """
    await context.memory.append("human", f"Lives in {city}.")
    return f"Noted for agent {context.agent_id}."
