"""`kubectl grove repack`: a gang waits although enough GPUs are free, and others can be moved for it."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console
from tests.support.repack_worlds import GPU, fragmented, serving

from grove.answers.answer import NO_FIT, RUNNING, Answer, Unanswered
from grove.answers.explain import explain_answer
from grove.answers.repack import fleet_answer, repack_answer
from grove.answers.repack_apply import GangsByClient, apply_answer
from grove.answers.topology import topology_answer
from grove.api.core import Pod, PodDisruptionBudget
from grove.api.labels import DISRUPTION, DRAINING, MOVE_TO, POD_GANG
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.cli.main import grove
from grove.plan.world import World, binding, shaped
from grove.scheduler.loop import diagnosis
from grove.scheduler.loop.metrics import headroom, sizes_in
from grove.scheduler.loop.moving import movable
from grove.scheduler.loop.moving.repack_steps import Stopped, move_gang
from grove.scheduler.policy.hold_ledger import HoldReason
from grove.show.repacking import MoveShown, RepackShown
from grove.sim.loop import run


async def asked_to_move(world: World, move: MoveShown, plan: RepackShown) -> None:
    await move_gang(GangsByClient(world.client), move.gang, move.target, plan.gang, world.cluster.clock)


def text_of(answer: Answer) -> str:
    console = Console(width=100, file=io.StringIO())
    console.print(answer.paint(100))
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.simulated
def test_the_plan_names_the_gang_to_move_its_new_place_and_where_the_waiting_gang_fits() -> None:
    async def story() -> None:
        async with World(shaped(3), steady=True) as world:
            await fragmented(world, 3, ["never", "never", "allow"])
            await world.apply(serving("chat", 1, 8))
            await asyncio.sleep(10)
            before = {pod.metadata.uid: pod.spec.node_name for pod in world.all(Pod)}
            answer = await repack_answer(world.client, "default", "chat")
            assert answer.code == RUNNING
            [move] = answer.data.moves
            last = max(node for node in before.values() if node)
            assert move.source == (last,)
            [target] = [node for nodes in move.target.values() for node in nodes]
            assert target != last
            assert answer.data.restarts == 1
            said = text_of(answer)
            assert f"{move.gang}     1  {last}" in said
            assert f"then default/chat-0 fits in {last}; 1 pod in all would restart" in said
            assert {pod.metadata.uid: pod.spec.node_name for pod in world.all(Pod)} == before, "nothing is written"

    run(story())


@pytest.mark.simulated
@pytest.mark.parametrize("said", ["never", ""], ids=["refused", "nothing is said: the default is never"])
def test_sets_that_do_not_allow_it_stay(said: str) -> None:
    async def story() -> None:
        async with World(shaped(2), steady=True) as world:
            await fragmented(world, 2, [said, said])
            await world.apply(serving("chat", 1, 8))
            await asyncio.sleep(10)
            answer = await repack_answer(world.client, "default", "chat")
            assert answer.code == NO_FIT
            assert "no running gang may be moved" in answer.data.why

    run(story())


@pytest.mark.simulated
def test_explain_names_the_move_and_the_command_for_it() -> None:
    async def story() -> None:
        async with World(shaped(3), steady=True) as world:
            await fragmented(world, 3, ["never", "never", "allow"])
            await world.apply(serving("chat", 1, 8))
            await asyncio.sleep(10)
            plan = (await repack_answer(world.client, "default", "chat")).data
            [move] = plan.moves
            answer = await explain_answer(world.client, "default", "chat", now=world.cluster.clock.now())
            [verdict] = answer.data["gangs"]
            advice = verdict.advice[0]
            [target] = [node for nodes in move.target.values() for node in nodes]
            assert advice.text == f"move gang {move.gang} to {target} (1 pod restarts)"
            assert advice.command == "kubectl grove -n default repack --for pg/chat-0 --apply"

    run(story())


@pytest.mark.simulated
def test_the_searches_of_explain_run_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The console answers with the same code, and has other viewers to serve."""
    searched, asides = list[tuple[str, bool]](), [0]

    def noted(name: str, search: Any) -> Any:
        def work(*args: Any, **more: Any) -> Any:
            searched.append((name, asides[0] > 0))
            return search(*args, **more)

        return work

    async def story() -> None:
        async with World(shaped(3), steady=True) as world:
            await fragmented(world, 3, ["never", "never", "allow"])
            await world.apply(serving("chat", 1, 8))
            await asyncio.sleep(10)
            loop = asyncio.get_running_loop()
            run_aside = loop.run_in_executor

            def run_in_executor(executor: Any, work: Any, *args: Any) -> Any:
                asides[0] += 1
                try:
                    return run_aside(executor, work, *args)
                finally:
                    asides[0] -= 1

            monkeypatch.setattr(loop, "run_in_executor", run_in_executor)
            monkeypatch.setattr(diagnosis, "explain", noted("explain", diagnosis.explain))
            monkeypatch.setattr(movable, "repack", noted("repack", movable.repack))
            await explain_answer(world.client, "default", "chat", now=world.cluster.clock.now())

    run(story())
    assert sorted(searched) == [("explain", True), ("repack", True)]


@pytest.mark.simulated
def test_applied_the_gang_moves_to_its_new_place_and_the_waiting_gang_gets_in() -> None:
    async def story() -> None:
        async with World(shaped(4), steady=True) as world:
            await fragmented(world, 4)
            await world.apply(serving("chat", 2, 8))
            await asyncio.sleep(10)
            plan = (await repack_answer(world.client, "default", "chat")).data
            assert len(plan.moves) == 2
            said: list[str] = []
            answer = await apply_answer(
                world.client, "default", "chat", plan, say=said.append, clock=world.cluster.clock
            )
            assert answer.code == RUNNING, text_of(answer)
            assert answer.data.restarts == plan.restarts == 2
            assert sorted(answer.data.moved) == sorted(move.gang for move in plan.moves)
            assert text_of(answer).endswith("moved; default/chat-0 has its place\n")
            assert await world.until(lambda: world.is_settled("chat"))
            where = {pod.metadata.labels[POD_GANG]: pod.spec.node_name for pod in world.all(Pod)}
            for move in plan.moves:
                assert where[move.gang.removeprefix("default/")] not in move.source
            assert not any(MOVE_TO in gang.metadata.annotations for gang in world.all(PodGang))
            assert not any(gang.status.capacity_holds for gang in world.all(PodGang))
            assert len(world.all(Pod)) == 6
            assert all(pod.is_bound for pod in world.all(Pod))

    run(story())


@pytest.mark.simulated
def test_no_other_gang_takes_the_new_place_while_the_pods_restart() -> None:
    async def story() -> None:
        async with World(shaped(3), steady=True) as world:
            await fragmented(world, 3, ["never", "never", "allow"])
            await world.apply(serving("chat", 1, 8))
            await asyncio.sleep(10)
            plan = (await repack_answer(world.client, "default", "chat")).data
            [move] = plan.moves
            [target] = [node for nodes in move.target.values() for node in nodes]
            held: list[bool] = []

            def note(old: Pod | None, new: Pod | None) -> None:
                if new is not None and new.metadata.is_deleting:
                    hold = world.scheduler.view.ledger.find(move.gang, HoldReason.REPLACEMENT)
                    held.append(hold is not None and {pod.node for pod in hold.pods} == {target})

            world.scheduler.cache.on_event(Pod, note)
            moving = asyncio.create_task(asked_to_move(world, move, plan))
            await world.until(lambda: any(pod.metadata.is_deleting for pod in world.all(Pod)))
            for i in range(4):
                await world.apply(serving(f"rival{i}", 1, 4))
            await moving
            assert held
            assert all(held), "the place is held before the first pod terminates, until it is gone"
            [pod] = world.pods_of(move.gang.removeprefix("default/"))
            assert pod.spec.node_name == target

    run(story())


@pytest.mark.simulated
@pytest.mark.parametrize("seconds", [30, 1800], ids=["30 s", "longer than a pod may take to terminate"])
def test_a_gang_that_drains_finishes_its_requests_before_it_moves(seconds: int) -> None:
    async def story() -> None:
        async with World(shaped(3), steady=True) as world:
            await fragmented(world, 3, ["never", "never", "allow"], drain_s=seconds)
            await world.apply(serving("chat", 1, 8))
            await asyncio.sleep(10)
            plan = (await repack_answer(world.client, "default", "chat")).data
            [move] = plan.moves
            gang = move.gang.removeprefix("default/")
            [target] = [node for nodes in move.target.values() for node in nodes]
            [old] = world.pods_of(gang)
            clock = world.cluster.clock
            moving = asyncio.create_task(asked_to_move(world, move, plan))
            assert await world.until(lambda: any(DRAINING in pod.metadata.annotations for pod in world.pods_of(gang)))
            began = clock.now()
            for i in range(4):
                await world.apply(serving(f"rival{i}", 1, 4))
            await asyncio.sleep(seconds - 10)
            [pod] = world.pods_of(gang)
            assert pod.metadata.uid == old.metadata.uid
            assert not pod.metadata.is_deleting
            await moving
            assert (clock.now() - began).total_seconds() >= seconds
            [pod] = world.pods_of(gang)
            assert pod.metadata.uid != old.metadata.uid
            assert pod.spec.node_name == target

    run(story())


@pytest.mark.simulated
def test_no_gang_is_moved_to_nodes_that_are_held_for_a_gang_ahead() -> None:
    """`first` holds nodes after its long wait. The scheduler accepts the move, because the plan uses other nodes."""

    async def story() -> None:
        async with World(shaped(5), steady=True) as world:
            await fragmented(world, 5, ["never", "never", "allow", "allow", "allow"])
            await world.apply(serving("first", 3, 8))
            await asyncio.sleep(600)
            await world.apply(serving("chat", 1, 8))
            await asyncio.sleep(10)
            [held] = [hold.nodes for gang in world.all(PodGang) for hold in gang.status.capacity_holds]
            assert len(held) == 3
            plan = (await repack_answer(world.client, "default", "chat")).data
            [move] = plan.moves
            [target] = [node for nodes in move.target.values() for node in nodes]
            assert not {*move.source, target}.intersection(held)
            await asked_to_move(world, move, plan)
            [pod] = world.pods_of(move.gang.removeprefix("default/"))
            assert pod.spec.node_name == target

    run(story())


@pytest.mark.simulated
def test_a_budget_keeps_its_gang_where_it_is() -> None:
    async def story() -> None:
        async with World(shaped(3), steady=True) as world:
            await fragmented(world, 3, ["never", "never", "allow"])
            await world.apply(serving("chat", 1, 8))
            await asyncio.sleep(10)
            plan = (await repack_answer(world.client, "default", "chat")).data
            [move] = plan.moves
            budget = {
                "metadata": {"name": "all", "namespace": "default"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {POD_GANG: move.gang.split("/")[1]}}},
            }
            await world.client.create(PodDisruptionBudget, budget)
            await asyncio.sleep(5)
            with pytest.raises(Stopped, match="disruption budget default/all protects it"):
                await asked_to_move(world, move, plan)
            again = (await repack_answer(world.client, "default", "chat")).data
            assert "budgets protect them" in again.why

    run(story())


@pytest.mark.simulated
def test_a_move_that_the_set_forbids_by_now_is_refused_and_nothing_changes() -> None:
    async def story() -> None:
        async with World(shaped(3), steady=True) as world:
            await fragmented(world, 3, ["never", "never", "allow"])
            await world.apply(serving("chat", 1, 8))
            await asyncio.sleep(10)
            before = {pod.metadata.uid: pod.spec.node_name for pod in world.all(Pod)}
            plan = (await repack_answer(world.client, "default", "chat")).data
            [move] = plan.moves
            patch = {"metadata": {"annotations": {DISRUPTION: "never"}}}
            await world.client.patch(PodCliqueSet, move.gang.split("/")[1].removesuffix("-0"), patch, "default")
            await asyncio.sleep(5)
            with pytest.raises(Stopped, match="the gang stays where it is: its set does not allow it"):
                await asked_to_move(world, move, plan)
            assert {pod.metadata.uid: pod.spec.node_name for pod in world.all(Pod)} == before
            answer = await apply_answer(world.client, "default", "chat", plan, clock=world.cluster.clock)
            assert answer.code == NO_FIT
            assert answer.data.moved == ()
            assert "no running gang may be moved" in answer.data.why

    run(story())


@pytest.mark.simulated
def test_a_gang_that_runs_needs_no_moves() -> None:
    async def story() -> None:
        async with World(shaped(1), steady=True) as world:
            await world.apply(serving("chat", 1, 8))
            assert await world.until(lambda: world.is_settled("chat"))
            answer = await repack_answer(world.client, "default", "chat")
            assert answer.code == RUNNING
            assert text_of(answer) == "no gang of chat waits for a place\n"

    run(story())


@pytest.mark.simulated
def test_the_fleet_shows_its_fragmentation_what_it_can_be_and_the_moves() -> None:
    async def story() -> None:
        bound = [(ClusterTopologyBinding, binding())]
        async with World(shaped(4), steady=True, objects=bound) as world:
            await fragmented(world, 4)
            await world.apply(serving("chat", 2, 8))
            await asyncio.sleep(10)
            before = {pod.metadata.uid: pod.spec.node_name for pod in world.all(Pod)}
            answer = await fleet_answer(world.client)
            plan = answer.data
            assert answer.code == RUNNING
            assert (plan.level, plan.resource) == ("rack", GPU)
            assert (plan.before, plan.after, plan.restarts) == (1.0, 0.0, 2)
            [step] = plan.steps
            assert len(step.moves) == 2
            said = text_of(answer)
            assert "gangs of 2 × 8 (default/chat-0 waits) in one domain cannot use" in said
            assert said.endswith("after 2 moves 1 gang more of this size would fit in one rack; 2 pods would restart\n")
            assert {pod.metadata.uid: pod.spec.node_name for pod in world.all(Pod)} == before, "nothing is written"

            view = world.scheduler.view
            measured = {key: ratio for key, of, _, ratio in headroom(view.snapshot, sizes_in(view)) if of == GPU}
            assert {one.key: one.before for one in plan.levels} == measured, "as the metric says"
            layout = (await topology_answer(world.client)).data
            drawn = {level.key: level.fragmentation for level in layout.levels}
            assert {one.key: one.before for one in plan.levels if one.key in drawn} == drawn, "as `topology` says"

    run(story())


@pytest.mark.simulated
def test_the_fleet_is_planned_for_the_level_that_is_named() -> None:
    async def story() -> None:
        async with World(shaped(2), steady=True, objects=[(ClusterTopologyBinding, binding())]) as world:
            nothing = await fleet_answer(world.client)
            assert nothing.code == RUNNING
            assert text_of(nothing) == f"no gang asks for {GPU}\n"
            await fragmented(world, 2, ["never", "never"])
            assert (await fleet_answer(world.client)).data.level == "host"
            await world.apply(serving("chat", 1, 8))
            await asyncio.sleep(10)
            refused = await fleet_answer(world.client, "host")
            assert refused.code == NO_FIT
            assert "no moves: no running gang may be moved" in " ".join(text_of(refused).split())
            with pytest.raises(Unanswered, match="there is no level shelf; the levels are zone"):
                await fleet_answer(world.client, "shelf")

    run(story())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ([], "give either --for NAME or --fleet"),
        (["--for", "chat", "--fleet"], "give either --for NAME or --fleet"),
        (["--fleet", "--apply"], "--apply needs --for NAME"),
        (["--for", "chat", "--level", "rack"], "--level and --resource need --fleet"),
    ],
)
def test_options_that_do_not_go_together_are_refused(asked: list[str], said: str) -> None:
    done = CliRunner().invoke(grove, ["repack", *asked])
    assert done.exit_code == 2
    assert said in done.output
