"""Why the API server refuses the pods of a clique, from its message, and what to do."""

from __future__ import annotations

import pytest
from tests.support import objects

from grove.diagnosis.refused import why_refused

FORBIDDEN = 'pods "chat-0-w-x" is forbidden: '


@pytest.mark.parametrize(
    ("error", "cause", "step"),
    [
        pytest.param(
            FORBIDDEN + "maximum cpu usage per Container is 1, but limit is 4",
            "LimitRange: maximum cpu usage per Container is 1, but limit is 4",
            "correct the resources of the pod template, or the LimitRange of the namespace",
            id="a LimitRange",
        ),
        pytest.param(
            'Internal error occurred: failed calling webhook "pods.policy.example": Post "https://policy": '
            "dial tcp 10.0.0.1:443: connect: connection refused",
            "webhook pods.policy.example does not answer",
            "start the program that serves webhook pods.policy.example, or remove its configuration",
            id="a webhook of another program that is down",
        ),
        pytest.param(
            'admission webhook "validate.kyverno.svc" denied the request: images must have a digest',
            "webhook validate.kyverno.svc denies them: images must have a digest",
            "correct the pod template, or the policy of the webhook",
            id="a policy",
        ),
        pytest.param(
            'Pod "chat-0-w-x" is invalid: spec.containers[0].name: Required value',
            "spec.containers[0].name: Required value",
            "correct what the API server refuses",
            id="any other refusal has the words of the API server",
        ),
    ],
)
def test_why_pods_are_refused(error: str, cause: str, step: str) -> None:
    level, reason, said, command = why_refused([(objects.clique("chat-0-w"), error)])
    assert (level, reason) == ("create", f"pods of chat-0-w cannot be created: {cause}")
    assert (said, command) == (step, "")
