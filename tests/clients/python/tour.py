"""Runs the steps that the test names, with a client from PyPI, and prints as JSON what came of each.

python tour.py CLIENT URL KEY STEP...
"""

import asyncio
import importlib
import json
import sys

client, url, key, *steps = sys.argv[1:]
module = importlib.import_module(f"with_{client}")


async def tour() -> dict[str, object]:
    return {step: await getattr(module, step)(url, key) for step in steps}


sys.stdout.write(json.dumps(asyncio.run(tour())))
