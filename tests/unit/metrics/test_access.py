"""Who is believed and who may ask: the aggregator's proof, the user it names, and answers that are remembered."""

from __future__ import annotations

from typing import Any

import pytest

from grove.api.meta import Json
from grove.metrics.access import REMEMBERED_S, Aggregator, Ask, Authorizer, User

PUBLISHED = {
    "requestheader-client-ca-file": "-----BEGIN CERTIFICATE-----",
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}


def certificate(name: str) -> dict[str, Any]:
    return {"subject": ((("organizationName", "x"),), (("commonName", name),))}


EVERYBODY = "system:authenticated"
FRONT = certificate("front-proxy-client")
HEADERS = [
    ("X-Remote-User", "jo"),
    ("x-remote-group", "a"),
    ("X-Remote-Group", "b"),
    ("X-Remote-Extra-Scopes%2fx", "s"),
]


@pytest.mark.parametrize(
    ("published", "shown", "headers", "want"),
    [
        pytest.param(
            PUBLISHED, FRONT, HEADERS, User("jo", ("a", "b", EVERYBODY), (("scopes/x", ("s",)),)), id="the aggregator"
        ),
        pytest.param(PUBLISHED, None, HEADERS, None, id="headers without a certificate are a forgery"),
        pytest.param(PUBLISHED, {}, HEADERS, None, id="a certificate that was not verified is none"),
        pytest.param(PUBLISHED, certificate("jo"), HEADERS, None, id="another name of the same authority"),
        pytest.param(PUBLISHED, FRONT, [], None, id="for nobody"),
        pytest.param(PUBLISHED, FRONT, [("X-Remote-User", "")], None, id="for an empty name"),
        pytest.param(
            {**PUBLISHED, "requestheader-allowed-names": "[]"},
            certificate("any"),
            HEADERS[:1],
            User("jo", (EVERYBODY,)),
            id="no names published: the authority is enough",
        ),
        pytest.param(
            PUBLISHED,
            FRONT,
            [("X-Remote-User", "system:anonymous"), ("X-Remote-Group", "system:unauthenticated")],
            User("system:anonymous", ("system:unauthenticated",)),
            id="nobody is not everybody",
        ),
        pytest.param({}, FRONT, HEADERS, None, id="an API server without aggregation is believed by nobody"),
        pytest.param(
            {**PUBLISHED, "requestheader-username-headers": '["X-Who"]'},
            FRONT,
            [("x-who", "jo"), *HEADERS[1:2]],
            User("jo", ("a", EVERYBODY)),
            id="headers by the names that are published",
        ),
    ],
)
def test_the_user_of_a_request(
    published: dict[str, str], shown: dict[str, Any] | None, headers: list[tuple[str, str]], want: User | None
) -> None:
    assert Aggregator.of(published).find_user(shown, headers) == want


class Reviews:
    """An API server that answers reviews, and remembers what it was asked."""

    def __init__(self, allowed: bool) -> None:
        self.allowed, self.asked = allowed, []

    asked: list[Json]

    async def create(self, kind: Any, obj: Json, **_: Any) -> Json:
        self.asked.append(obj["spec"])
        return {"status": {"allowed": self.allowed}}


METRIC = Ask("", "custom.metrics.k8s.io", "v1beta2", "n", "pods", "*", "grove_requests_waiting")
JO = User("jo", ("a",), (("scopes", ("s",)),))


async def test_the_api_server_is_asked_with_everything_it_needs() -> None:
    reviews = Reviews(True)
    assert await Authorizer(reviews).may(JO, METRIC)  # type: ignore[arg-type]
    assert reviews.asked == [
        {
            "user": "jo",
            "groups": ["a"],
            "extra": {"scopes": ["s"]},
            "resourceAttributes": {
                "verb": "get",
                "group": "custom.metrics.k8s.io",
                "version": "v1beta2",
                "namespace": "n",
                "resource": "pods",
                "name": "*",
                "subresource": "grove_requests_waiting",
            },
        }
    ]


async def test_an_answer_is_remembered_for_a_while_for_the_same_question_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reviews = Reviews(False)
    authorizer = Authorizer(reviews)  # type: ignore[arg-type]
    for _ in range(3):
        assert not await authorizer.may(JO, METRIC)
    assert len(reviews.asked) == 1
    await authorizer.may(User("other"), METRIC)
    await authorizer.may(JO, Ask(path="/apis"))
    assert len(reviews.asked) == 3
    assert reviews.asked[2]["nonResourceAttributes"] == {"path": "/apis", "verb": "get"}
    monkeypatch.setattr("grove.metrics.access.REMEMBERED_S", -REMEMBERED_S)
    await authorizer.may(JO, METRIC)
    assert len(reviews.asked) == 4


async def test_masters_need_no_review() -> None:
    reviews = Reviews(False)
    assert await Authorizer(reviews).may(User("root", ("system:masters",)), METRIC)  # type: ignore[arg-type]
    assert reviews.asked == []
