"""The chapters of `make answer`: each does one thing to the cluster while requests are sent, and writes one row."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from tools.answer.table import Row

from grove.local.nodes import node
from grove.local.nodes.cluster import RealCluster

PATIENCE_S = 600.0
TOKENS = 16
QUESTIONS = ("How do I open a file and read its lines?", "What is a generator?", "Which loops are there?")
LLAMA, DYNAMO = "llama-cpp-rpc", "dynamo"


class Story:
    """A cluster with Grove, the samples, and where rows go."""

    def __init__(self, cluster: RealCluster, samples: Path, write: Callable[[Row], object]) -> None:
        self.cluster, self.samples, self.write = cluster, samples, write
        sys.path.insert(0, str(samples))
        self._ask: Any = importlib.import_module("ask")
        self._load: Any = importlib.import_module("load")

    def apply(self, manifest: str) -> float:
        """Applies YAML, again if the API server is too busy to answer; the moment before."""
        began = time.monotonic()
        self.until("the manifest is applied", lambda: self.cluster.kubectl("apply", "-f", "-", stdin=manifest))
        return began

    def manifest(self, sample: str, file: str = "manifest.yaml") -> str:
        return (self.samples / sample / file).read_text()

    def url(self, service: str) -> str:
        return f"http://{self.cluster.get('service', service)['spec']['clusterIP']}"

    def first_answer(self, url: str, model: str, since: float, *, chat: bool = False) -> float:
        """Seconds from `since` to the first answer. Until then nothing listens, so refusals do not count."""
        self.until(f"{model} answers at {url}", lambda: not self._failure(url, model, QUESTIONS[0], chat))
        return time.monotonic() - since

    def ask_all(self, url: str, model: str, *, chat: bool = False) -> tuple[int, list[str]]:
        """How many of the questions failed, and the answers; both are printed."""
        answers, failed = [], 0
        for question in QUESTIONS:
            try:
                text = self._ask.answer(url, model, question, TOKENS, chat)
            except self._ask.Failed as problem:
                failed += 1
                text = f"(no answer: {problem})"
            answers.append(text)
            print(f"    asked     {question}\n    answered  {' '.join(text.split())[:100]}", flush=True)
        return failed, answers

    def load(
        self, url: str, models: list[str], clients: int = 2, *, tokens: int = TOKENS, words: int = 0, chat: bool = False
    ) -> Any:
        return self._load.Load(url, models, clients, tokens, words, chat)

    def pods(self, selector: str) -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = self.cluster.get("pods", "-l", selector)["items"]
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def ready(self, selector: str) -> list[dict[str, Any]]:
        return [pod for pod in self.pods(selector) if _is_ready(pod)]

    def until(self, what: str, look: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
        """Returns when `look` finds something. An error of kubectl counts as not yet: a busy machine is slow."""
        end, last = time.monotonic() + patience_s, ""
        while True:
            try:
                if look():
                    return
            except (RuntimeError, KeyError, IndexError) as problem:
                last = f"{type(problem).__name__}: {problem}"
            if time.monotonic() > end:
                pods = self.cluster.kubectl("get", "pods", "-o", "wide", check=False)
                raise RuntimeError(f"not within {patience_s:.0f} s: {what}\n{last}\n{pods}")
            time.sleep(0.5)

    def kill(self, pod: dict[str, Any]) -> None:
        """Kills the process of a pod's first container, as a crash does."""
        place = next(place for place in self.cluster.places if place.name == pod["spec"]["nodeName"])
        container = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
        node.ctr(place, "tasks", "kill", "--signal", "SIGKILL", container)

    def _failure(self, url: str, model: str, prompt: str, chat: bool) -> str:
        try:
            self._ask.answer(url, model, prompt, TOKENS, chat)
        except self._ask.Failed as problem:
            return str(problem)
        return ""


def begin(story: Story) -> None:
    say("llama.cpp: one model, computed by a leader and two workers")
    began = story.apply(story.manifest(LLAMA))
    url = story.url("llama")
    first_s = story.first_answer(url, "tiny-a", began)
    failed, answers = story.ask_all(url, "tiny-a")
    again = story.ask_all(url, "tiny-a")[1]
    nodes = {pod["spec"]["nodeName"] for pod in story.pods("app.kubernetes.io/part-of=llama")}
    same = "the same answers twice" if answers == again else "DIFFERENT answers"
    count = 2 * len(QUESTIONS)
    seen = f"{same}; pods on {', '.join(sorted(nodes))}"
    story.write(
        Row("llama.cpp over 3 pods", count, count - failed, failed, first_s, seen, failed == 0 and answers == again)
    )


def one_process(story: Story) -> None:
    say("the same model in one process gives the same text")
    leader = next(obj for obj in yaml.safe_load_all(story.manifest(LLAMA)) if obj["kind"] == "PodCliqueSet")
    clique = next(clique for clique in leader["spec"]["template"]["cliques"] if clique["name"] == "leader")
    spec = clique["spec"]["podSpec"]
    container = spec["containers"][0]
    words = container["args"]
    place = words.index("--rpc")
    container["args"] = words[:place] + words[place + 2 :]
    container.pop("env", None)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alone"}, "spec": spec}
    began = story.apply(yaml.safe_dump(pod))
    try:
        story.until("the pod has an address", lambda: story.cluster.get("pod", "alone")["status"].get("podIP"))
        url = f"http://{story.cluster.get('pod', 'alone')['status']['podIP']}:8080"
        first_s = story.first_answer(url, "tiny-a", began)
        failed, alone = story.ask_all(url, "tiny-a")
        more_failed, together = story.ask_all(story.url("llama"), "tiny-a")
        equal = alone == together
    finally:
        story.cluster.kubectl("delete", "pod", "alone", "--wait=false")
    count, bad = 2 * len(QUESTIONS), failed + more_failed
    seen = "equal text from 1 process and from 3 pods" if equal else "the texts differ"
    story.write(Row("llama.cpp in 1 process", count, count - bad, bad, first_s, seen, equal and not bad))


def kill_worker(story: Story) -> None:
    say("a worker is killed while requests are sent")
    url = story.url("llama")
    load = story.load(url, ["tiny-a"])
    time.sleep(5)
    worker = story.ready("app.kubernetes.io/part-of=llama,grove.io/podclique=llama-0-instance-0-worker")[0]
    (leader,) = story.ready("app=llama")
    began = time.monotonic()
    story.kill(worker)
    print(f"    killed    the process of {worker['metadata']['name']}", flush=True)
    # The leader aborts at its next request; it answers again when both have been started again.
    for part, pod in (("worker", worker), ("leader", leader)):
        story.until(f"the {part} is started again", lambda pod=pod: _is_started_again(story, pod))
    first_s = story.first_answer(url, "tiny-a", began)
    story.until("all three pods are ready", lambda: len(story.ready("app.kubernetes.io/part-of=llama")) == 3)
    time.sleep(5)
    counts = load.stop()
    story.ask_all(url, "tiny-a")
    _row(story, "a worker is killed", counts, first_s, "leader and worker restarted, answers again")


def _is_started_again(story: Story, pod: Any) -> bool:
    """True if a container of the pod was restarted since the pod was read."""
    return _restarts(story.cluster.get("pod", pod["metadata"]["name"])) > _restarts(pod)


def scale(story: Story) -> None:
    say("one instance becomes three behind one Service")
    url = story.url("llama")
    load = story.load(url, ["tiny-a", "tiny-b"])
    began = time.monotonic()
    story.cluster.kubectl("scale", "pcsg/llama-0-instance", "--replicas=3")
    story.until("three leaders are ready", lambda: len(story.ready("app=llama")) == 3)
    first_s = time.monotonic() - began
    before = _prompts(story)
    story.until("every leader answers", lambda: all(_prompts(story)[name] > before[name] for name in before))
    counts = load.stop()
    _row(story, "1 instance becomes 3", counts, first_s, "all three leaders answered", most=0)


def update_one(story: Story) -> None:
    say("the model of one instance is updated: without a surge, then with maxSurge: 1")
    counts, took_s = _updated(story, "tiny-b", 1)
    _row(story, "a new model, 1 instance", counts, took_s, "every instance has the new model")
    counts, took_s = _updated(story, "tiny-a", 1, surge=1)
    _row(story, "the same with maxSurge: 1", counts, took_s, "the new instance came first", most=0)


def update(story: Story) -> None:
    say("the model of three instances is updated, one after another")
    counts, took_s = _updated(story, "tiny-b", 3)
    _row(story, "a new model, 3 instances", counts, took_s, "every instance has the new model")


def _with_model(story: Story, model: str, surge: int) -> str:
    """The manifest of llama.cpp with that model, and with that surge for its scaling group."""
    objects = list(yaml.safe_load_all(story.manifest(LLAMA).replace("tiny-a", model)))
    if surge:
        (system,) = (obj for obj in objects if obj["kind"] == "PodCliqueSet")
        (group,) = system["spec"]["template"]["podCliqueScalingGroups"]
        group["rollingUpdate"] = {"maxSurge": surge}
    return str(yaml.safe_dump_all(objects))


def _updated(story: Story, model: str, instances: int, *, surge: int = 0) -> tuple[Any, float]:
    """Applies the manifest with that model under load; the load's counts, and seconds until every leader has the model.

    While both models are behind the Service, either may answer.
    """
    url = story.url("llama")
    load = story.load(url, ["tiny-a", "tiny-b"])
    try:
        began = story.apply(_with_model(story, model, surge))

        def is_updated() -> bool:
            leaders = story.pods("app=llama")
            new = [
                leader for leader in leaders if model in leader["spec"]["containers"][0]["args"] and _is_ready(leader)
            ]
            return len(new) == len(leaders) == instances

        def is_over() -> bool:
            """No old or further pod is left, not even one that is being deleted."""
            pods = story.cluster.get("pods", "-l", "app.kubernetes.io/part-of=llama")["items"]
            return is_updated() and len(pods) == 3 * instances

        story.until("every leader has the new model", is_updated)
        took_s = time.monotonic() - began
        story.first_answer(url, model, began)
        story.until("the update is over", is_over)
    finally:
        counts = load.stop()
    return counts, took_s


def dynamo(story: Story) -> None:
    say("Dynamo, prefill and decode apart; its engine is a mock and writes random words")
    story.apply(story.manifest(DYNAMO, "crd.yaml"))
    story.cluster.kubectl("wait", "--for=condition=Established", "crd/dynamoworkermetadatas.nvidia.com")
    began = story.apply(story.manifest(DYNAMO))
    url = story.url("dynamo")
    first_s = story.first_answer(url, "tiny", began, chat=True)
    failed, _ = story.ask_all(url, "tiny", chat=True)
    count = len(QUESTIONS)
    seen = "frontend, prefill, decode; no etcd, no NATS"
    story.write(Row("Dynamo answers (mock)", count, count - failed, failed, first_s, seen, failed == 0))


def dynamo_scales(story: Story) -> None:
    say("Dynamo under load: prefill scales on its queue, decode on its cache")
    url = story.url("dynamo")
    # Long prompts make a queue at prefill; long answers keep blocks of decode's cache.
    load = story.load(url, ["tiny"], 24, tokens=96, words=80, chat=True)
    began = time.monotonic()

    def replicas(group: str) -> int:
        return int(story.cluster.get("pcsg", f"dynamo-0-{group}")["spec"]["replicas"])

    try:
        story.until("a part grows", lambda: replicas("prefill") + replicas("decode") > 2)
        first_s = time.monotonic() - began
        for part in ("prefill", "decode"):
            story.until(f"{part} grows", lambda part=part: replicas(part) > 1)
            story.until(
                f"a new {part} worker is ready", lambda part=part: len(story.ready(f"app=dynamo,part={part}")) > 1
            )
    finally:
        counts = load.stop()
    seen = f"prefill {replicas('prefill')}, decode {replicas('decode')} workers"
    _row(story, "Dynamo under load", counts, first_s, seen)


def dynamo_zero(story: Story) -> None:
    say("prefill goes to zero and comes back")
    story.cluster.kubectl("scale", "pcsg/dynamo-0-prefill", "--replicas=0")
    story.until("no prefill pod is left", lambda: not story.pods("app=dynamo,part=prefill"))
    began = time.monotonic()
    story.cluster.kubectl("scale", "pcsg/dynamo-0-prefill", "--replicas=1")
    story.until("a prefill pod is ready", lambda: story.ready("app=dynamo,part=prefill"))
    first_s = story.first_answer(story.url("dynamo"), "tiny", began, chat=True)
    failed, _ = story.ask_all(story.url("dynamo"), "tiny", chat=True)
    count = len(QUESTIONS)
    story.write(Row("prefill to 0 and back", count, count - failed, failed, first_s, "answers again", failed == 0))


CHAPTERS: dict[str, Callable[[Story], None]] = {
    "begin": begin,
    "one-process": one_process,
    "kill-worker": kill_worker,
    "update-one": update_one,
    "scale": scale,
    "update": update,
    "dynamo": dynamo,
    "dynamo-scales": dynamo_scales,
    "dynamo-zero": dynamo_zero,
}


def say(line: str) -> None:
    print(f"\n== {line}", flush=True)


def _row(
    story: Story, chapter: str, counts: Any, first_s: float, seen: str, *, most: int | None = None, held: bool = True
) -> None:
    """A row of a load's counts; `most`: how many requests may fail."""
    for reason, times in counts["reasons"].items():
        print(f"    failed    {times} times: {reason}", flush=True)
    fine = held and counts["answered"] > 0 and (most is None or counts["failed"] <= most)
    story.write(Row(chapter, counts["sent"], counts["answered"], counts["failed"], first_s, seen, fine))


def _prompts(story: Story) -> dict[str, float]:
    """How many prompt tokens each leader has read so far, from its metrics page."""
    prompts = {}
    for pod in story.ready("app=llama"):
        page = story.cluster.kubectl(
            "get", "--raw", f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}:8080/proxy/metrics"
        )
        lines = [line for line in page.splitlines() if line.startswith("llamacpp:prompt_tokens_total ")]
        prompts[pod["metadata"]["name"]] = float(lines[0].split()[1]) if lines else 0.0
    return prompts


def _restarts(pod: dict[str, Any]) -> int:
    return sum(status["restartCount"] for status in pod["status"]["containerStatuses"])


def _is_ready(pod: dict[str, Any]) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod["status"].get("conditions", ())
    )
