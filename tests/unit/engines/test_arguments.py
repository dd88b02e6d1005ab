"""vLLM, SGLang and Dynamo as samples and chart start them: their own parsers, as recorded, take every word."""

from __future__ import annotations

import pytest
from tests.support.engine_arguments import PROGRAMS, Call, Refused, calls, parser, recorded

CALLS = calls()


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.where.replace(" ", ":"))
def test_the_parser_takes_the_arguments(call: Call) -> None:
    parser(call.engine).parse_args(call.arguments)


@pytest.mark.parametrize("engine", [engine for engine in PROGRAMS if engine != "sglang-router"])
def test_the_options_are_those_of_the_version_in_the_images(engine: str) -> None:
    tags = {call.image.rpartition(":")[2].removeprefix("v") for call in CALLS if call.engine == engine}
    assert tags == {recorded(engine)["version"]}, "tools/engines/options.py records those of another version"


def test_samples_and_chart_are_looked_at() -> None:
    files = {call.where.split()[0] for call in CALLS}
    assert {
        "samples/agentic-pipeline.yaml",
        "samples/deepseek-like.yaml",
        "samples/disaggregated.yaml",
        "samples/engines/sglang-disagg/manifest.yaml",
        "samples/engines/vllm-multinode/manifest.yaml",
        "samples/engines/dynamo/manifest.yaml",
        "charts/inference/examples/dynamo-disaggregated.yaml",
        "charts/inference/examples/sglang-disaggregated.yaml",
        "charts/inference/examples/vllm-disaggregated.yaml",
        "charts/inference/examples/vllm-multi-node.yaml",
    } <= files
    assert {call.engine for call in CALLS} == set(PROGRAMS)
    ranks = [
        call.arguments[call.arguments.index("--node-rank") + 1] for call in CALLS if "--headless" in call.arguments
    ]
    assert set(ranks) == {"1"}, "the shell adds one to the index of a worker"


@pytest.mark.parametrize(
    ("engine", "words", "message"),
    [
        ("vllm", ["m", "--tensor-paralel-size", "2"], "unrecognized arguments: --tensor-paralel-size 2"),
        ("vllm", ["m", "--nnodes", "two"], "invalid int value: 'two'"),
        ("vllm", ["m", "--headless", "--master-addr"], "expected one argument"),
        ("sglang", ["--model-path", "m", "--disaggregation-mode", "both"], "invalid choice: 'both'"),
        ("sglang", ["--model-path", "m", "--dist-init"], "unrecognized arguments: --dist-init"),
        ("sglang-router", ["--prefil-selector", "a=b"], "unrecognized arguments: --prefil-selector a=b"),
        ("dynamo.vllm", ["--model", "m", "--is-prefill-worker"], "unrecognized arguments: --is-prefill-worker"),
        ("dynamo.vllm", ["--model", "m", "--tensor-parallel-size", "two"], "invalid int value: 'two'"),
        ("dynamo.mocker", ["--model-path", "m", "--disaggregation-mode", "both"], "invalid choice: 'both'"),
        ("dynamo.frontend", ["--router-mode", "best"], "invalid choice: 'best'"),
    ],
)
def test_what_the_parser_does_not_take_is_refused(engine: str, words: list[str], message: str) -> None:
    with pytest.raises(Refused, match=message):
        parser(engine).parse_args(words)
