"""The guided tour in a browser: the world of the demo in a thread of its own, at a pace the page sets.

The loop of this world has virtual time and no sockets. The server's loop has real time. Finished rows go to the page
and calls go to the world, both across threads safely. The page shows what the demo itself runs: the same operator, the
same scheduler, and the same verbs as in a scenario file.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from grove.api.meta import rfc3339
from grove.api.topology import ClusterTopologyBinding
from grove.console.ledger import Ledger
from grove.console.rows import fleet_rows, gang_row, node_rows, set_rows
from grove.console.viewers import Later, Question, Unanswerable, Watched
from grove.demo.chronicle import Note
from grove.demo.pace import LONGEST_REST_S, PER_SECOND, PacedLoop, idle
from grove.demo.scenario import BadScenario, Scenario, read_scenario
from grove.demo.stage import verdict_lines
from grove.demo.story import Story, StoryFailed
from grove.diagnosis.gang_answer import Verdict
from grove.diagnosis.processes import Processes
from grove.diagnosis.seen import Seen
from grove.plan.world import World, binding, shaped
from grove.show.figures import FLEET, GangCounts, own_values
from grove.show.layout import layout_of
from grove.show.past import Past

NODES = 64
NOTES = 200
"""Sentences that a page is given; older ones have scrolled away."""
FASTEST = 20.0
READ_S = 0.03
"""Time a reader has for a letter, at speed 1."""
LOOK_S = 1.5
_LEAST_REST_S = 0.03
BREAKING = (
    "failPod",
    "failNode",
    "restoreNode",
    "removeNode",
    "drain",
    "cordon",
    "uncordon",
    "scale",
    "update",
    "addNodes",
)
"""Verbs of scenarios that a viewer may do by hand."""


class PausableLoop(PacedLoop):
    """A paced loop that can stand still and that other threads can call at any time: a call ends a rest at once.

    It stands still while it is paused, and while a person reads. It still answers questions.
    """

    def __init__(self, *, speed: float, frame: Callable[[], None]) -> None:
        super().__init__(speed=speed, frame=frame)
        self.paused = False
        self.asked = 0
        """Questions under way: for them time passes at once, and only for as long as they take."""
        self.skipping = False
        """On its way to the next chapter, without a rest."""
        self._called = threading.Event()
        self._left_s: float | None = None
        """What is left of a rest that a call ended."""
        self._reader: asyncio.Future[None] | None = None
        self._reading_s = 0.0

    async def read(self, seconds: float) -> None:
        """Time to read, of spectators and not of the cluster; half of it at twice the speed."""
        if seconds and not self.skipping:
            self._reader, self._reading_s = self.create_future(), seconds / (self.speed or 1.0)
            await self._reader

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        self._called.set()
        return handle

    def _jump(self, timeout: float | None) -> None:
        if timeout is not None and not self.asked and (self._reads() or self._rests(timeout)):
            return  # a viewer reads: time stands still meanwhile
        super(PacedLoop, self)._jump(timeout)

    def _reads(self) -> bool:
        reader = self._reader
        if reader is None:
            return False
        if not self.skipping and not reader.done():
            was_paused = self.paused
            _, took_s = self._waited(self._reading_s)
            self._reading_s -= 0.0 if was_paused else took_s
        if self.skipping or self._reading_s <= 0 or reader.done():
            self._reader = None
            if not reader.done():
                reader.set_result(None)
        return True

    def _rests(self, timeout: float) -> bool:
        if self._left_s is None:
            self._owed_s += min(timeout / (PER_SECOND * (self.speed or 1.0)), LONGEST_REST_S)
        else:
            self._owed_s, self._left_s = self._left_s, None
        if self.skipping:
            self._owed_s = 0.0
        if self._owed_s < _LEAST_REST_S and not self.paused:
            return False
        owed_s, self._owed_s = self._owed_s, 0.0
        called, took_s = self._waited(owed_s)
        if called or self.paused:
            self._left_s = max(0.0, owed_s - took_s)
            return True
        return False

    def _waited(self, seconds: float) -> tuple[bool, float]:
        """Draws, then waits for a call, at most this long (for ever if paused). Returns whether a call came, and the
        time waited.
        """
        self._frame()
        began_s = time.monotonic()
        called = self._called.wait(None if self.paused else seconds)
        self._called.clear()
        return called, time.monotonic() - began_s


class _ReadStory(Story):
    """A story with time to read after what has to be read."""

    def __init__(self, world: World, audience: Tour) -> None:
        super().__init__(world, audience)
        self._tour = audience

    async def play(self, scenario: Scenario) -> None:
        try:
            for step in scenario.steps:
                await self.do(step)
                await self._tour.was_read()
        finally:
            self._end_traffic()


class Tour:
    """One showing of a scenario, from the first viewer to `stop`. The ledger is the server's, the world a thread's."""

    mode = "tour"

    def __init__(self, plot: Scenario, *, nodes: int | None = None, seed: int = 1, speed: float = 1.0):
        self.ledger, self.is_everything = Ledger(), True
        self._plot, self._seed, self._speed = plot, seed, speed
        self._nodes = nodes or plot.nodes or NODES
        self._chapters = [dict(step.args) for step in plot.steps if step.verb == "chapter"]
        self._here: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._restarting = False
        self._begin()

    def _begin(self) -> None:
        """As before the curtain rises."""
        self.past, self._counts = Past(), GangCounts()
        self._loop: PausableLoop | None = None
        self._world: World | None = None
        self._story: Story | None = None
        self._ended = threading.Event()
        self._notes: list[Note] = []
        self._unread_s = 0.0
        self._chapter = -1
        self._explained: dict[str, Any] = {}
        self._state = "playing"
        self._drawn = -1

    # On the server's loop

    def _start(self) -> None:
        self._here = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._play, name="tour", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        if self._loop is not None and self._thread is not None and self._thread.is_alive():
            self._loop.paused = False
            self._loop.call_soon_threadsafe(self._cancel)
            await asyncio.to_thread(self._thread.join, 10.0)

    async def _restart(self) -> None:
        if self._restarting:
            return
        self._restarting = True
        try:
            self._speed = self._loop.speed if self._loop is not None else self._speed
            await self.stop()
            self._begin()
            self._start()
        finally:
            self._restarting = False

    @asynccontextmanager
    async def watching(self, namespace: str) -> AsyncIterator[Watched]:
        if self._thread is None:
            self._start()  # the curtain rises for the first viewer, not before
        yield self

    async def still_may(self, watched: Watched) -> bool:
        return True

    async def answer(self, question: Question, namespace: str, asked: Mapping[str, Any]) -> Any:
        world = self._running()
        answer = await self._there(question(world.client, namespace, asked))
        return await asyncio.to_thread(answer.work) if isinstance(answer, Later) else answer

    async def act(self, asked: Mapping[str, Any]) -> Any:
        """Carries out a button: changes the speed of the tour, or causes a fault in its cluster."""
        loop, verb = self._loop, asked.get("verb")
        if loop is None:
            raise Unanswerable("the tour is not playing yet")
        if verb in ("pause", "play"):
            loop.paused = verb == "pause"
            loop.call_soon_threadsafe(self._publish)
        elif verb == "next":
            loop.skipping, loop.paused = self._state == "playing", False
            loop.call_soon_threadsafe(self._publish)
        elif verb == "restart":
            await self._restart()
        elif verb == "speed":
            try:
                loop.speed = min(FASTEST, max(0.1, float(asked["speed"])))
            except (KeyError, TypeError, ValueError):
                raise Unanswerable("speed must be a number") from None
            loop.call_soon_threadsafe(self._publish)
        elif verb in BREAKING:
            await self._there(self._does({key: value for key, value in asked.items() if key != "verb"}, verb))
        else:
            raise Unanswerable(f"there is no button {verb}")
        return {"done": verb}

    async def _there(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Runs something on the world's loop; while it runs, time there does not wait for spectators."""
        loop = self._loop
        assert loop is not None

        async def counted() -> Any:
            loop.asked += 1
            try:
                return await work
            finally:
                loop.asked -= 1

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(counted(), loop))

    def _running(self) -> World:
        if self._world is None:
            raise Unanswerable("the tour is not playing yet")
        return self._world

    # On the world's loop

    def _play(self) -> None:
        saved = random.getstate()
        random.seed(self._seed)
        try:
            with asyncio.Runner(loop_factory=self._make_loop) as runner:
                runner.run(self._perform())
        except (asyncio.CancelledError, KeyboardInterrupt):
            pass
        finally:
            random.setstate(saved)
            self._ended.set()

    def _make_loop(self) -> asyncio.AbstractEventLoop:
        self._loop = PausableLoop(speed=self._speed, frame=self._frame)
        return self._loop

    def _cancel(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    async def _perform(self) -> None:
        objects = [(ClusterTopologyBinding, binding())]
        async with World(shaped(self._nodes, self._plot.gpus), seed=self._seed, objects=objects) as world:
            self._world = world
            self._story = _ReadStory(world, self)
            self._publish()
            try:
                await self._story.play(self._plot)
                self._state = "over"
            except StoryFailed as error:
                self._state = "failed"
                self.tell(Note(world.time_s, "failed", "", str(error)))
            assert self._loop is not None
            self._loop.skipping = False
            self._publish()
            await idle()

    async def _does(self, args: Mapping[str, Any], verb: str) -> None:
        assert self._story is not None
        try:
            step = read_scenario({"steps": [{verb: dict(args)}]}, lambda name: {}).steps[0]
            await self._story.do(step)
        except (StoryFailed, BadScenario) as error:
            raise Unanswerable(str(error)) from error
        self._publish()

    def _frame(self) -> None:
        """Before every rest of the loop: the page is brought up to date if anything was written meanwhile."""
        if self._world is not None and self._world.cluster.server.store.revision != self._drawn:
            self._publish()

    def _publish(self) -> None:
        world, loop = self._world, self._loop
        assert loop is not None
        if world is None or self._here is None or self._here.is_closed():
            return
        self._drawn = world.cluster.server.store.revision
        seen = world.seen()
        layout = layout_of(seen)
        story = {
            "chapters": self._chapters,
            "chapter": self._chapter,
            "state": self._state,
            "paused": loop.paused,
            "speed": loop.speed,
            "time": round(world.time_s, 1),
            "explained": self._explained,
            "title": self._plot.title,
            "groups": _groups(seen),
            "now": rfc3339(world.cluster.clock.now()),
        }
        notes = self._notes[-NOTES:]
        first = len(self._notes) - len(notes)
        tables = {
            "nodes": node_rows(layout),
            "fleet": fleet_rows(layout),
            "story": story,
            "gangs": {str(gang.metadata.key): gang_row(gang) for gang in seen.gangs},
            "notes": {str(first + number): msgspec.to_builtins(note) for number, note in enumerate(notes)},
            "sets": set_rows(seen, world.cluster.clock.now(), Processes(), layout.resource),
            "about": {"unreadable": [], "namespace": ""},
        }
        self._here.call_soon_threadsafe(self._put, tables, world.cluster.clock.now().timestamp())

    def _put(self, tables: dict[str, dict[str, Any]], at: float) -> None:
        """On the server's loop: the rows, and the past of their figures."""
        self._counts.count({key: row["placed"] for key, row in tables["gangs"].items()})
        _, total, used, _ = tables["fleet"]["total"]
        values = self._counts.values(sum(row["gangRestarts"] for row in tables["sets"].values()), used, total)
        self.past.record(FLEET, values, at)
        for key, row in tables["sets"].items():
            self.past.record(key, own_values(row), at)
        self.ledger.replace(tables | {"figures": {FLEET: values}})

    # The audience of the story

    async def was_read(self) -> None:
        """Returns when spectators had time for what was last said."""
        assert self._loop is not None
        seconds, self._unread_s = self._unread_s, 0.0
        await self._loop.read(seconds)

    def chapter(self, title: str, text: str) -> None:
        assert self._loop is not None
        self._chapter += 1
        self._explained = {}
        self._loop.skipping = False
        self._publish()
        self._unread_s += READ_S * len(title + text)

    def tell(self, note: Note) -> None:
        self._notes.append(note)

    def explain(self, verdict: Verdict) -> None:
        self._explained = {"gang": verdict.gang, "lines": verdict_lines(verdict)}
        self._publish()
        self._unread_s += READ_S * sum(map(len, self._explained["lines"]))

    def picture(self, world: World) -> None:
        self._publish()
        self._unread_s += LOOK_S


def _groups(seen: Seen) -> list[list[Any]]:
    """The parts that a viewer can scale: set, scaling group and replicas, of each set's first replica."""
    groups = []
    for pcs in seen.sets:
        for group in pcs.spec.template.pod_clique_scaling_groups:
            name = f"{pcs.metadata.name}-0-{group.name}"
            own_group = next((candidate for candidate in seen.groups if candidate.metadata.name == name), None)
            if own_group is not None:
                groups.append([pcs.metadata.name, group.name, own_group.spec.replicas])
    return groups
