"""What counts as a change of pods: a stable hash of a clique's template, and one of all of them.

Two spellings of the same template hash alike: key order does not count, nor does a field that is absent or empty, nor
`1000m` for `1`. A Go client that reads and writes a set rewrites it that way, and that must not restart a cluster.
Nor does a default that admission fills in: a set that was stored without it has the hash that it has with it.
List order counts. The values need not equal those of other implementations.

A version that reads templates in another way has another hash for the same template. `Reading` names every way that
this operator has ever had, so that what an earlier version recorded is recognised (`find_earlier_reading`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import Any

import msgspec

from grove.api import labels
from grove.api.meta import Json
from grove.api.podcliqueset import AdoptedHash, CliqueTemplate, PodCliqueSet, PodCliqueSetTemplate, is_coherent
from grove.api.quantity import InvalidQuantity, exact

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels and no digits that look like them: a hash never spells a word."""
_LENGTH = 10

_QUANTITIES = frozenset({"limits", "requests", "overhead"})
_VERBATIM = frozenset({"labels", "annotations", "nodeSelector", "matchLabels"})
"""Maps of the user's own keys: there an empty value is a value."""
_EMPTY_MEANS_SOMETHING = frozenset(
    {"emptyDir", "projected", "downwardAPI", "secret", "configMap", "labelSelector", "namespaceSelector", "selector"}
)
_FALSE_IS_ABSENT = frozenset({"hostNetwork", "hostPID", "hostIPC", "stdin", "stdinOnce", "tty", "readOnly"})
_ZERO_IS_ABSENT = frozenset(
    {"initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold", "hostPort"}
)
POD_DEFAULTS: Mapping[str, Any] = {"restartPolicy": "Always", "terminationGracePeriodSeconds": 30}
"""What admission fills in where a pod spec leaves it open. Kubernetes has the same defaults, so no pod differs.

The hash reads a template with these values. If a later version adds a default, the hash must leave it out wherever the
template has exactly that value. Then the hashes that clusters have recorded stay the same.
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a version of this operator reads templates.

    `own_priority`: the priority class of a clique's own pod spec counts. `absent`: defaults that the recorded template
    did not have, and that were not filled in then.
    """

    own_priority: bool = True
    absent: frozenset[str] = frozenset()


NOW = Reading()


def pod_template_hash(clique: CliqueTemplate, priority_class_name: str = "", *, reading: Reading = NOW) -> str:
    """Hash of what a clique's pods are made from; the set's `priority_class_name` counts where the clique has none."""
    return short_hash(_subject(clique, priority_class_name, reading))


def generation_hash(template: PodCliqueSetTemplate, *, reading: Reading = NOW) -> str:
    """Hash of all clique templates in their order: when it changes, an update begins."""
    return short_hash([_subject(clique, template.priority_class_name, reading) for clique in template.cliques])


def _readings() -> tuple[Reading, ...]:
    subsets = chain.from_iterable(combinations(POD_DEFAULTS, count) for count in range(len(POD_DEFAULTS) + 1))
    return tuple(Reading(own, frozenset(absent)) for own, absent in product((True, False), subsets))


READINGS = _readings()
"""Every way that a version had. The defaults may have been filled in after a version recorded the template."""


def find_earlier_reading(template: PodCliqueSetTemplate, recorded: str) -> Reading | None:
    """The reading by which an earlier version recorded the templates as they are; None if it recorded others."""
    if recorded == generation_hash(template):
        return None
    return next((reading for reading in READINGS if recorded == generation_hash(template, reading=reading)), None)


def generation_hashes(pcs: PodCliqueSet) -> frozenset[str]:
    """Every hash by which the templates of a set may have been recorded."""
    template = pcs.spec.template
    return frozenset({set_generation_hash(pcs), *(generation_hash(template, reading=reading) for reading in READINGS)})


def hash_in_use(adopted: Iterable[AdoptedHash], clique_name: str, own: str) -> str:
    """The name by which a template goes: the one another operator gave it (`status.adoptedHashes`), or our own."""
    same = (
        adopted_hash.used_hash
        for adopted_hash in adopted
        if adopted_hash.clique_name == clique_name and adopted_hash.own_hash == own
    )
    return next(same, own)


def set_generation_hash(pcs: PodCliqueSet) -> str:
    """The hash of all templates of a set; under its adopted name if it has one."""
    return hash_in_use(pcs.status.adopted_hashes, "", generation_hash(pcs.spec.template))


def wanted_revision(pcs: PodCliqueSet, part: str) -> str:
    """The revision of a standalone clique or of a scaling group, by its name in the set."""
    return pcs.status.revisions.get(part) or pcs.status.current_generation_hash or set_generation_hash(pcs)


def is_outdated(pcs: PodCliqueSet, own: Mapping[str, str], template_hash: str | None, part: str) -> bool:
    """True if a pod or a PodClique with these labels is from another template than its part of the set has now.

    In a coherent update it is also outdated if it has another revision: what it may be paired with has changed.
    """
    if own.get(labels.POD_TEMPLATE_HASH) != template_hash:
        return True
    if not is_coherent(pcs):
        return False
    revision = wanted_revision(pcs, part)
    return own.get(labels.REVISION, revision) != revision


def is_taken_up(pcs: PodCliqueSet) -> bool:
    """True if the operator has seen the present spec of a set.

    While an update is open, `status.observedGeneration` has the former value. The recorded hash decides then.
    """
    status, progress = pcs.status, pcs.status.update_progress
    if status.observed_generation == pcs.metadata.generation:
        return True
    is_open = progress is not None and progress.update_ended_at is None
    return is_open and status.current_generation_hash == set_generation_hash(pcs)


def is_behind(pcs: PodCliqueSet) -> bool:
    """True if the operator has seen the set before, and has not taken up its present spec yet."""
    return pcs.status.observed_generation is not None and not is_taken_up(pcs)


def is_own(name: str) -> bool:
    """True if Grove in Python made a hash. The Go operator writes twice as many letters of the same alphabet."""
    return len(name) == _LENGTH and all(letter in _ALPHABET for letter in name)


def _subject(clique: CliqueTemplate, priority_class_name: str, reading: Reading) -> Json:
    written = clique.spec.pod_spec
    pod_spec = {**written, **{name: value for name, value in POD_DEFAULTS.items() if written.get(name) in (None, "")}}
    for name in reading.absent:
        if pod_spec[name] == POD_DEFAULTS[name]:
            del pod_spec[name]
    own = written.get("priorityClassName") if reading.own_priority else ""
    return {
        "labels": clique.labels,
        "annotations": clique.annotations,
        "podSpec": {**pod_spec, "priorityClassName": own or priority_class_name},
    }


def short_hash(subject: Any) -> str:
    text = msgspec.json.encode(_canonical(subject), order="deterministic")
    number = int.from_bytes(hashlib.sha256(text).digest()[:8])
    digits = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(digits)


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        plain = ((k, _canonical_field(k, v)) for k, v in value.items())
        return {k: v for k, v in plain if not _is_absent(k, v)}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return value


def _canonical_field(key: str, value: Any) -> Any:
    if key in _VERBATIM:
        return value
    if key in _QUANTITIES and isinstance(value, dict):
        return {name: _amount(quantity) for name, quantity in value.items()}
    return _canonical(value)


def _is_absent(key: str, value: Any) -> bool:
    if value is None or value == "" or value == []:
        return True
    if value == {}:
        return key not in _EMPTY_MEANS_SOMETHING
    if value is False:
        return key in _FALSE_IS_ABSENT
    return value == 0 and value is not False and key in _ZERO_IS_ABSENT


def _amount(quantity: Any) -> Any:
    """The value, not its spelling; anything odd stays as it is, so that it still hashes."""
    try:
        return str(exact(quantity))
    except (InvalidQuantity, TypeError):
        return quantity
