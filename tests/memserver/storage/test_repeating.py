"""What is done beside other work ends with it, also where a cancellation gets lost."""

import asyncio

from memserver.storage.repeating import end, run_beside
from tests.support.deaf import deaf


async def test_work_that_lost_its_cancellation_is_cancelled_again_when_the_block_ends() -> None:
    heard: list[str] = []
    async with asyncio.timeout(30):
        async with run_beside(deaf(heard)):
            await asyncio.sleep(0)
    assert heard == ["cancelled", "cancelled"]


async def test_all_of_several_tasks_have_ended_also_those_that_failed() -> None:
    async def fail() -> None:
        raise ValueError("nope")

    tasks = [asyncio.create_task(deaf([])), asyncio.create_task(fail())]
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await end(*tasks)
    assert all(task.done() for task in tasks)
