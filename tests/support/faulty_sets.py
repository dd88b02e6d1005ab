"""PodCliqueSets that break one general rule each, with the faults the user must read: literal paths and messages.

Shared by the tests of the rules themselves and those that go through an API server.
"""

from __future__ import annotations

import pytest

from tests.support.manifests import clique, group, pcs
from tests.support.reviews import ABSENT, changed, plain

T = "spec.template"
G = f"{T}.podCliqueScalingGroups"
LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
TOO_LONG = (
    "combined length of the names is 46, at most 45 are allowed so that pod names stay within 63 characters: shorten "
)

TEMPLATE = {"name": "gpu", "templateSpec": {"spec": {"devices": {"requests": [{"name": "one"}]}}}}
SHARE = {"name": "gpu", "scope": "PerReplica"}


def explicit(**parents: list[str]) -> dict:
    """A set with explicit start order; each clique and what it starts after."""
    cliques = [clique(name, starts_after=after) for name, after in parents.items()]
    return pcs("demo", *cliques, startup="CliqueStartupTypeExplicit")


def with_templates(**fields) -> dict:
    return changed(plain(), (f"{T}.resourceClaimTemplates", [TEMPLATE]), *fields.items())


SHAPES = [
    pytest.param(
        changed(plain(), ("spec.updateStrategy", {"type": "Sometimes"})),
        [
            'spec.updateStrategy.type: Unsupported value: "Sometimes": '
            'supported values: "RollingRecreate", "OnDelete", "Coherent"'
        ],
        id="an unknown update strategy",
    ),
    pytest.param(
        changed(plain(), ("spec.updateStrategy", {"rollingRecreate": {"maxUnavailable": 0}})),
        [
            "spec.updateStrategy.rollingRecreate.maxUnavailable: Invalid value: 0: "
            "spec.updateStrategy.rollingRecreate.maxUnavailable in body should be greater than or equal to 1"
        ],
        id="an update that may replace nothing",
    ),
    pytest.param(
        changed(plain(), (f"{T}.cliqueStartupType", "Random")),
        [
            f'{T}.cliqueStartupType: Unsupported value: "Random": supported values: "CliqueStartupTypeAnyOrder", '
            '"CliqueStartupTypeInOrder", "CliqueStartupTypeExplicit"'
        ],
        id="an unknown start order",
    ),
    pytest.param(
        pcs("demo", clique("a"), changed(clique("a"), ("spec.roleName", "b"))),
        [f'{T}.cliques[1]: Duplicate value: {{"name":"a"}}'],
        id="clique names are unique",
    ),
]
"""What the schema refuses, with the same sentences from an API server."""

ROWS = [
    pytest.param(
        changed(plain(), ("metadata.name", "")),
        ["metadata.name: Required value: name or generateName is required"],
        id="a set needs a name",
    ),
    pytest.param(
        changed(plain(), ("metadata.name", "my.set")),
        [
            'metadata.name: Invalid value: "my.set": it becomes the name of Services and part of hostnames: '
            f"{LABEL_RULE}"
        ],
        id="a dot in the name of a set would fail when its Service is made",
    ),
    pytest.param(
        changed(plain(), ("metadata.namespace", "")),
        ["metadata.namespace: Required value"],
        id="a namespace is required",
    ),
    pytest.param(
        changed(plain(), ("metadata.labels", {"a": "b c"})),
        [f'metadata.labels: Invalid value: "b c": {VALUE_RULE}'],
        id="labels of the set are valid",
    ),
    pytest.param(
        changed(plain(), ("spec.replicas", -1)),
        ["spec.replicas: Invalid value: -1: must not be negative"],
        id="replicas of the set are not negative",
    ),
    pytest.param(
        changed(plain(), ("spec.updateStrategy", {"progressDeadline": "-1m"})),
        ['spec.updateStrategy.progressDeadline: Invalid value: "-1m": must be greater than 0'],
        id="a deadline in the past",
    ),
    pytest.param(
        changed(plain(), ("metadata.annotations", {"grove.io/max-gang-restarts": "many"})),
        ['metadata.annotations.grove.io/max-gang-restarts: Invalid value: "many": must be a whole number, 0 or more'],
        id="restarts that cannot be counted",
    ),
    pytest.param(
        changed(plain(), ("metadata.annotations", {"grove.io/startup-readiness-gate": "yes"})),
        ['metadata.annotations.grove.io/startup-readiness-gate: Invalid value: "yes": must be "true" or "false"'],
        id="a readiness gate that is neither wanted nor not",
    ),
    pytest.param(
        changed(plain(), (f"{T}.cliqueStartupType", ABSENT)),
        [f"{T}.cliqueStartupType: Required value: one of the start orders is required"],
        id="a start order is required after defaulting",
    ),
    pytest.param(
        changed(plain(), (f"{T}.resourceClaimTemplates", [{**TEMPLATE, "name": ""}])),
        [f"{T}.resourceClaimTemplates[0].name: Required value: a claim template needs a name"],
        id="a claim template needs a name",
    ),
    pytest.param(
        changed(plain(), (f"{T}.resourceClaimTemplates", [{**TEMPLATE, "name": "Big GPU"}])),
        [
            f'{T}.resourceClaimTemplates[0].name: Invalid value: "Big GPU": it becomes part of a '
            f"ResourceClaim's name: {SUBDOMAIN_RULE}"
        ],
        id="a claim template's name must fit into a claim's",
    ),
    pytest.param(
        changed(plain(), (f"{T}.resourceClaimTemplates", [{"name": "gpu", "templateSpec": {"spec": {}}}])),
        [
            f"{T}.resourceClaimTemplates[0].templateSpec.spec.devices.requests: Required value: "
            "at least one device request is required"
        ],
        id="a claim template asks for a device",
    ),
    pytest.param(
        changed(plain(), (f"{T}.resourceClaimTemplates", [TEMPLATE, TEMPLATE])),
        [f'{T}.resourceClaimTemplates.name: Duplicate value: "gpu"'],
        id="claim template names are unique",
    ),
    *[
        pytest.param(
            changed(plain(), (f"{T}.resourceClaimTemplates", [TEMPLATE]), (f"{at}.resourceSharing", [entry])),
            [message.format(shown)],
            id=f"{what} at {shown}",
        )
        for at, shown in (
            (T, T),
            (f"{T}.cliques.0", f"{T}.cliques[0]"),
            (f"{G}.0", f"{G}[0]"),
        )
        for what, entry, message in (
            (
                "a share needs a name",
                {**SHARE, "name": ""},
                "{}.resourceSharing[0].name: Required value: name of a claim template is required",
            ),
            (
                "an internal template has no namespace",
                {**SHARE, "namespace": "other"},
                '{}.resourceSharing[0].namespace: Invalid value: "other": must be empty: "gpu" is one of '
                "spec.template.resourceClaimTemplates, only others have a namespace",
            ),
            (
                "a namespace that cannot be one",
                {**SHARE, "name": "theirs", "namespace": "a/b"},
                '{}.resourceSharing[0].namespace: Invalid value: "a/b": ' + LABEL_RULE,
            ),
            (
                "an unknown scope",
                {**SHARE, "scope": "Sometimes"},
                '{}.resourceSharing[0].scope: Unsupported value: "Sometimes": supported values: '
                '"AllReplicas", "PerReplica"',
            ),
        )
    ],
    pytest.param(
        changed(plain(), (f"{T}.cliques.0.resourceSharing", [SHARE, SHARE])),
        [f'{T}.cliques[0].resourceSharing[1].name: Duplicate value: "gpu"'],
        id="a template is shared once in a list",
    ),
    pytest.param(
        changed(plain(), (f"{T}.resourceSharing", [{**SHARE, "filter": {}}])),
        [
            f"{T}.resourceSharing[0].filter: Required value: name at least one of childCliqueNames and "
            "childScalingGroupNames"
        ],
        id="a filter of the set names something",
    ),
    pytest.param(
        changed(
            plain(),
            (
                f"{T}.resourceSharing",
                [{**SHARE, "filter": {"childCliqueNames": ["lead", "x"], "childScalingGroupNames": ["grp", "y"]}}],
            ),
        ),
        [
            f'{T}.resourceSharing[0].filter.childCliqueNames[1]: Not found: "x"',
            f'{T}.resourceSharing[0].filter.childScalingGroupNames[1]: Not found: "y"',
        ],
        id="a filter of the set names what exists, members of groups included",
    ),
    pytest.param(
        changed(plain(), (f"{G}.0.resourceSharing", [{**SHARE, "filter": {}}])),
        [
            f"{G}[0].resourceSharing[0].filter: Required value: name at least one of the group's "
            "cliques in childCliqueNames"
        ],
        id="a filter of a group names a clique",
    ),
    pytest.param(
        changed(
            plain(),
            (
                f"{G}.0.resourceSharing",
                [{**SHARE, "filter": {"childCliqueNames": ["router"]}}],
            ),
        ),
        [f'{G}[0].resourceSharing[0].filter.childCliqueNames[0]: Not found: "router"'],
        id="a filter of a group names its own cliques only",
    ),
    pytest.param(
        pcs("demo"), [f"{T}.cliques: Required value: at least one clique is required"], id="a set has a clique"
    ),
    pytest.param(
        changed(plain(), (f"{T}.cliques.0.name", " ")),
        [f"{T}.cliques[0].name: Required value: a clique needs a name"],
        id="a blank clique name",
    ),
    pytest.param(
        changed(plain(), (f"{T}.cliques.0.name", "rou.ter")),
        [f'{T}.cliques[0].name: Invalid value: "rou.ter": it becomes part of hostnames: {LABEL_RULE}'],
        id="a dot in a clique's name would fail when its pods are made",
    ),
    pytest.param(
        pcs("s" * 30, clique("c" * 16)),
        [
            f'{T}.cliques[0].name: Invalid value: "{"c" * 16}": {TOO_LONG}PodCliqueSet "{"s" * 30}" or clique '
            f'"{"c" * 16}"',
            f'metadata.name: Invalid value: "{"s" * 30}": {TOO_LONG}PodCliqueSet "{"s" * 30}" or clique "{"c" * 16}"',
        ],
        id="names of set and standalone clique share 45 characters",
    ),
    pytest.param(
        changed(plain(), (f"{T}.cliques.0.labels", {"-x": "y"})),
        [f'{T}.cliques[0].labels: Invalid value: "-x": {KEY_RULE}'],
        id="labels of a clique are valid",
    ),
    pytest.param(
        changed(plain(), (f"{T}.cliques.0.annotations", {"a b": "y"})),
        [f'{T}.cliques[0].annotations: Invalid value: "a b": {KEY_RULE}'],
        id="annotations of a clique are valid",
    ),
    pytest.param(
        changed(plain(), (f"{T}.cliques.0.spec.replicas", -2)),
        [f"{T}.cliques[0].spec.replicas: Invalid value: -2: must not be negative"],
        id="replicas of a clique are not negative",
    ),
    pytest.param(
        changed(plain(), (f"{T}.cliques.0.spec.minAvailable", ABSENT)),
        [f"{T}.cliques[0].spec.minAvailable: Required value"],
        id="minAvailable is required after defaulting",
    ),
    pytest.param(
        changed(plain(), (f"{T}.cliques.0.spec.minAvailable", 0)),
        [f"{T}.cliques[0].spec.minAvailable: Invalid value: 0: must be greater than 0"],
        id="minAvailable of a clique is positive",
    ),
    pytest.param(
        changed(plain(), (f"{T}.cliques.0.spec.minAvailable", 3)),
        [f"{T}.cliques[0].spec.minAvailable: Invalid value: 3: must not be greater than replicas (2)"],
        id="minAvailable of a clique is within its replicas",
    ),
    pytest.param(
        explicit(a=[], b=[" "]),
        [f"{T}.cliques[1].spec.startsAfter: Required value: an entry must name a clique"],
        id="a blank dependency",
    ),
    pytest.param(
        explicit(a=["a"]),
        [f'{T}.cliques[0].spec.startsAfter: Invalid value: "a": a clique cannot start after itself'],
        id="a clique that waits for itself",
    ),
    pytest.param(
        explicit(a=[], b=["a", "a"]),
        [f'{T}.cliques[1].spec.startsAfter: Duplicate value: "a"'],
        id="the same dependency twice",
    ),
    pytest.param(
        explicit(a=["x"], b=["y", "a"]),
        [
            f'{T}.cliques[0].spec.startsAfter: Invalid value: "x": no such clique in spec.template.cliques',
            f'{T}.cliques[1].spec.startsAfter: Invalid value: "y": no such clique in spec.template.cliques',
        ],
        id="unknown dependencies are listed",
    ),
    pytest.param(
        changed(explicit(a=[], b=["g"]), (f"{T}.podCliqueScalingGroups", [group("g", "a", "b")])),
        [
            f'{T}.cliques[1].spec.startsAfter: Invalid value: "g": no such clique in spec.template.cliques: '
            "it is a scaling group; name one of its cliques"
        ],
        id="a scaling group is no dependency",
    ),
    pytest.param(
        explicit(a=["b"], b=["a"], c=["d"], d=["c"]),
        [
            f'{T}.cliques: Invalid value: ["a","b"]: cliques wait for each other and none can start: '
            "a starts after b, b starts after a",
            f'{T}.cliques: Invalid value: ["c","d"]: cliques wait for each other and none can start: '
            "c starts after d, d starts after c",
        ],
        id="every circle is listed",
    ),
    pytest.param(
        pcs("demo", clique("a", 2, scale={"maxReplicas": 4})),
        [f"{T}.cliques[0].spec.autoScalingConfig.minReplicas: Required value"],
        id="minReplicas is required after defaulting",
    ),
    pytest.param(
        pcs("demo", clique("a", 2, scale={"minReplicas": 1, "maxReplicas": 4})),
        [
            f"{T}.cliques[0].spec.autoScalingConfig.minReplicas: Invalid value: 1: must be greater than or equal to "
            "minAvailable (2)"
        ],
        id="an autoscaler does not go below minAvailable",
    ),
    pytest.param(
        pcs("demo", clique("a", 3, scale={"minReplicas": 3, "maxReplicas": 2})),
        [
            f"{T}.cliques[0].spec.autoScalingConfig.maxReplicas: Invalid value: 2: must be greater than or equal to "
            "minReplicas (3)",
            f"{T}.cliques[0].spec.autoScalingConfig.maxReplicas: Invalid value: 2: must be greater than or equal to "
            "replicas (3)",
        ],
        id="maxReplicas is not below minReplicas nor replicas",
    ),
    pytest.param(
        pcs("demo", clique("a"), changed(clique("b"), ("spec.roleName", "a"))),
        [f'{T}.cliques.roleName: Duplicate value: "a": used by cliques[0] and cliques[1]'],
        id="role names are unique",
    ),
    pytest.param(
        pcs("demo", clique("a", schedulerName="volcano"), clique("b")),
        [
            f'{T}.cliques.spec.podSpec.schedulerName: Invalid value: ["default-scheduler","volcano"]: '
            "all cliques must use the same scheduler"
        ],
        id="one scheduler for all cliques, the default included",
    ),
    pytest.param(
        pcs("demo", clique("a", schedulerName="other")),
        [
            f'{T}.cliques.spec.podSpec.schedulerName: Invalid value: "other": scheduler is not enabled in the operator '
            "configuration, which has: default-scheduler, kai-scheduler, volcano; an administrator adds it to "
            "scheduler.profiles there"
        ],
        id="a scheduler that is not enabled",
    ),
    pytest.param(
        changed(plain(), (f"{G}.0.name", "Grp")),
        [f'{G}[0].name: Invalid value: "Grp": it becomes part of hostnames: {LABEL_RULE}'],
        id="a group's name fits into hostnames",
    ),
    pytest.param(
        changed(plain(), (f"{G}.0.cliqueNames", ["lead", "x", "y"])),
        [f'{G}[0].cliqueNames: Invalid value: ["lead","x","y"]: no such clique in spec.template.cliques: x, y'],
        id="a group's cliques exist",
    ),
    pytest.param(
        changed(plain(), (f"{G}.0.cliqueNames", [])),
        [f"{G}[0].cliqueNames: Required value: a scaling group needs at least one clique"],
        id="a group without cliques",
    ),
    pytest.param(
        pcs("s" * 20, clique("c" * 16), groups=[group("g" * 10, "c" * 16)]),
        [
            f'{where}: Invalid value: "{name}": {TOO_LONG}PodCliqueSet "{"s" * 20}" or scaling group "{"g" * 10}" or '
            f'clique "{"c" * 16}"'
            for where, name in (
                (f"{G}[0].cliqueNames[0]", "c" * 16),
                (f"{G}[0].name", "g" * 10),
                ("metadata.name", "s" * 20),
            )
        ],
        id="names of set, group and member share 45 characters",
    ),
    pytest.param(
        changed(plain(), (f"{G}.0.replicas", -1)),
        [f"{G}[0].replicas: Invalid value: -1: must not be negative"],
        id="replicas of a group are not negative",
    ),
    pytest.param(
        changed(plain(), (f"{G}.0.minAvailable", 0)),
        [f"{G}[0].minAvailable: Invalid value: 0: must be greater than 0"],
        id="minAvailable of a group is positive",
    ),
    pytest.param(
        changed(plain(), (f"{G}.0.minAvailable", 2)),
        [f"{G}[0].minAvailable: Invalid value: 2: must not be greater than replicas (1)"],
        id="minAvailable of a group is within its replicas",
    ),
    pytest.param(
        changed(
            plain(),
            (f"{G}.0.replicas", 3),
            (f"{G}.0.minAvailable", 2),
            (f"{G}.0.scaleConfig", {"minReplicas": 1, "maxReplicas": 5}),
        ),
        [f"{G}[0].scaleConfig.minReplicas: Invalid value: 1: must be greater than or equal to minAvailable (2)"],
        id="a group's autoscaler does not go below minAvailable",
    ),
    pytest.param(
        changed(plain(), (f"{G}.0.scaleConfig", {"minReplicas": 4, "maxReplicas": 3})),
        [f"{G}[0].scaleConfig.maxReplicas: Invalid value: 3: must be greater than or equal to minReplicas (4)"],
        id="a group's maxReplicas is not below minReplicas",
    ),
    pytest.param(
        pcs("demo", clique("a"), clique("b"), groups=[group("g", "a"), group("g", "b")]),
        [f'{G}.name: Duplicate value: "g": used by podCliqueScalingGroups[0] and podCliqueScalingGroups[1]'],
        id="group names are unique",
    ),
    pytest.param(
        pcs("demo", clique("a"), groups=[group("g", "a"), group("h", "a")]),
        [f'{G}.cliqueNames: Duplicate value: "a": a clique belongs to one scaling group, once; it is in "g" and "h"'],
        id="a clique in two groups",
    ),
    pytest.param(
        pcs("demo", clique("a"), groups=[group("g", "a", "a")]),
        [f'{G}.cliqueNames: Duplicate value: "a": a clique belongs to one scaling group, once; it is in "g" and "g"'],
        id="a clique twice in a group",
    ),
    pytest.param(
        pcs("demo", clique("a", scale={"minReplicas": 1, "maxReplicas": 2}), groups=[group("g", "a")]),
        [
            f'{G}: Invalid value: "a": a clique of a scaling group must not have '
            "autoScalingConfig: put scaleConfig on the group"
        ],
        id="a member is not scaled on its own",
    ),
    pytest.param(
        changed(plain(), (f"{T}.terminationDelay", ABSENT)),
        [f"{T}.terminationDelay: Required value"],
        id="a termination delay is required after defaulting",
    ),
    *[
        pytest.param(
            changed(plain(), (f"{T}.terminationDelay", delay)),
            [f'{T}.terminationDelay: Invalid value: "{delay}": {message}'],
            id=f"termination delay {delay}",
        )
        for delay, message in (
            ("0s", "must be greater than 0"),
            ("-5m", "must be greater than 0"),
            ("tomorrow", "must be a duration such as 30s, 10m or 4h0m0s"),
            ("90000h", "must not be longer than 87600h (ten years)"),
            ("9999999999h", "must be a duration such as 30s, 10m or 4h0m0s"),
        )
    ],
]

SCALE = {"minReplicas": 1, "maxReplicas": 2}

COLLISIONS = [
    pytest.param(
        pcs("demo", clique("grp-0-work"), clique("work"), groups=[group("grp", "work")]),
        [
            f'{T}.cliques[0].name: Duplicate value: "grp-0-work": the pods of clique "work" in scaling group "grp" get '
            "the same name: rename one"
        ],
        id="a clique whose pods would take a member's names",
    ),
    pytest.param(
        pcs("demo", clique("grp-9-work"), clique("work"), groups=[group("grp", "work")]),
        [
            f'{T}.cliques[0].name: Duplicate value: "grp-9-work": the pods of clique "work" in scaling group "grp" get '
            "the same name: rename one"
        ],
        id="the names of a replica that an autoscaler may add",
    ),
    pytest.param(
        pcs("demo", clique("0-b"), clique("b"), groups=[group("a", "0-b"), group("a-0", "b")]),
        [
            f'{G}[1].cliqueNames[0]: Duplicate value: "b": the pods of clique "0-b" in scaling group "a" get '
            "the same name: rename one"
        ],
        id="members of two groups, the index at the border",
    ),
    pytest.param(
        pcs("demo", clique("b"), clique("x-7-b"), groups=[group("a-3-x", "b"), group("a", "x-7-b")]),
        [
            f'{G}[1].cliqueNames[0]: Duplicate value: "x-7-b": the pods of clique "b" in scaling group "a-3-x" get '
            "the same name: rename one"
        ],
        id="members of two groups, more than an index between",
    ),
    pytest.param(
        pcs(
            "demo",
            clique("same", scale=SCALE),
            clique("work"),
            groups=[group("same", "work", scale=SCALE)],
        ),
        [
            f'{T}.cliques[0].name: Duplicate value: "same": a scaling group has this name too and both are autoscaled, '
            "so their autoscalers would be one"
        ],
        id="an autoscaler for two",
    ),
    pytest.param(
        pcs(
            "demo",
            clique("same", sharing=[SHARE]),
            clique("work"),
            groups=[group("same", "work", resourceSharing=[SHARE])],
            resourceClaimTemplates=[TEMPLATE],
        ),
        [
            f'{G}[0].resourceSharing[0].name: Duplicate value: "gpu": the ResourceClaims of clique "same" get '
            "the same name: rename one"
        ],
        id="a claim of a clique and of a group",
    ),
    pytest.param(
        pcs(
            "demo",
            clique("lead", sharing=[SHARE]),
            clique("work"),
            groups=[group("grp", "lead", "work", resourceSharing=[{"name": "lead-2-gpu", "scope": "PerReplica"}])],
            resourceClaimTemplates=[TEMPLATE],
        ),
        [
            f'{G}[0].resourceSharing[0].name: Duplicate value: "lead-2-gpu": the ResourceClaims of clique "lead" in '
            'scaling group "grp" get the same name: rename one'
        ],
        id="a claim of a group and of one of its cliques",
    ),
    pytest.param(
        pcs(
            "demo",
            clique("work", sharing=[SHARE]),
            resourceClaimTemplates=[TEMPLATE],
            resourceSharing=[{"name": "work-0-gpu", "scope": "PerReplica"}],
        ),
        [
            f'{T}.cliques[0].resourceSharing[0].name: Duplicate value: "gpu": the ResourceClaims of the set get '
            "the same name: rename one"
        ],
        id="a claim of the set and of a clique",
    ),
]
"""Names inside one set that become one name. A set that was stored before this was refused stays editable."""
