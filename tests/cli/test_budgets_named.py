"""A disruption budget keeps pods that a gang would evict: `explain` names the budget, and its end helps."""

from __future__ import annotations

import pytest
from tests.support.asking import World, text_of
from tests.support.broken import cleaned, protected_by_a_budget

from grove.answers.explain import explain_answer
from grove.answers.tree import status_answer
from grove.api.core import PodDisruptionBudget

pytestmark = pytest.mark.real_in("soak")


async def test_a_gang_that_a_budget_keeps_waiting_names_the_budget(world: World) -> None:
    await protected_by_a_budget(world)
    try:
        explain = await explain_answer(world.client, world.namespace, "chat", now=world.now)
        budget = f"pods of lower priority are protected by disruption budgets {world.namespace}/keep"
        assert explain.data["reason"].endswith(f"; {budget}")
        text = text_of(explain, 300, world)
        assert "preemption: the scheduler evicts them when their disruption budgets allow it" in text
        await world.client.delete(PodDisruptionBudget, "keep", world.namespace)

        async def runs() -> bool:
            [row] = (await status_answer(world.client, world.namespace, "chat", world.now)).data
            return bool(row.state == "running")

        await world.cluster.eventually(runs, 300)
    finally:
        await cleaned(world)
