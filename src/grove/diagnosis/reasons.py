"""Words for reasons: the one place where a `Reason` becomes a sentence, for conditions, events and the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from grove.api.quantity import format_amount
from grove.api.words import many
from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.facts import NOT_SELECTED, SLOT
from grove.scheduler.model.reasons import Reason

_HELPFUL = (kinds.CLOSEST, kinds.SHARED_HOME, kinds.BUDGETS)
"""Parts that `sentence` adds after the reason itself."""
PROTECTED = "pods of lower priority are protected by disruption budgets"


def sentence(reason: Reason) -> str:
    """The reason in one line, with its numbers; what comes closest to helping follows after a semicolon."""
    say = _WORDS.get(reason.kind)
    text = say(reason) if say is not None else reason.subject or reason.kind
    after = [sentence(part) for part in reason.parts if part.kind in _HELPFUL]
    return "; ".join(part for part in (text, *after) if part)


def level_of(reason: Reason) -> str:
    """Where a finding or a refusal belongs: the gang as a whole, a domain of the topology, or the nodes."""
    return _LEVELS.get(reason.kind, "gang")


_LEVELS = {
    kinds.CLOSEST: "domain",
    kinds.NO_DOMAIN: "domain",
    kinds.PINNED: "domain",
    kinds.NO_PACKING: "domain",
    kinds.SPREAD_SKEW: "domain",
    kinds.SPREAD_HOME: "domain",
    kinds.NODES_FOR: "node",
    kinds.NO_NODE: "node",
    kinds.SCORED: "score",
    kinds.MAY_CALL_BACK: "queue",
}


def _no_capacity(reason: Reason) -> str:
    """The total request of the gang. If no node can take even one pod, that is the reason instead."""
    nodes = reason.part(kinds.NODES_FOR)
    preference = reason.part(kinds.NEEDS)
    parts = [preference] if preference is not None and (nodes is None or nodes.number("fit")) else []
    return "; ".join(sentence(part) for part in (*parts, nodes) if part is not None) or "nothing to place"


def _nodes_for(reason: Reason) -> str:
    why = filtered(reason)
    head = f"{reason.subject}: {reason.number('fit')}/{reason.number('nodes')} nodes can take one of its pods"
    return f"{head} ({why})" if why else head


def filtered(reason: Reason) -> str:
    """The causes that exclude nodes, the most frequent first. Nodes that the pods do not select come last."""
    parts = sorted(reason.parts, key=lambda part: part.kind == kinds.FILTERED and part.subject == NOT_SELECTED)
    return ", ".join(sentence(part) for part in parts)


def _one_more(reason: Reason) -> str:
    why = filtered(reason) or "none of them where its gang may be"
    return f"{reason.number('fit')}/{reason.number('nodes')} nodes can take one more pod of the gang ({why})"


def _preference(reason: Reason) -> str:
    name = reason.subject
    wanted, free = (format_amount(name, reason.number(key)) for key in ("wanted", "free"))
    return f"needs {wanted} {name}, {free} free in {reason.names.get('where', 'the cluster')}"


def _filtered(reason: Reason) -> str:
    return f"{reason.number('nodes')} {reason.subject}"


def _insufficient(reason: Reason) -> str:
    if reason.subject.startswith(SLOT):
        return f"{reason.number('nodes')} without a free place in its reservations"
    return f"{reason.number('nodes')} insufficient {reason.subject}"


def _held(reason: Reason) -> str:
    holder = f"for {reason.subject}" if reason.subject else "for others that wait longer"
    return f"{reason.number('nodes')} held {holder}"


def _kept_out(reason: Reason) -> str:
    since = f" since {when}" if (when := reason.names.get("since")) else ""
    return f"it would fit, but nodes are held for {reason.subject}{since}"


def _headroom(reason: Reason) -> str:
    held, wanted, lent = (reason.number(key) for key in ("held", "wanted", "lent"))
    count = f"for {many(held, 'further replica')}" if held == wanted else f"for {held} of {many(wanted, 'replica')}"
    text = f"headroom {count} is held on {many(reason.number('nodes'), 'node')}"
    if lent:
        text += f"; pods of a lower priority use the capacity of {many(lent, 'pod')} of it"
    return text + "".join(f": {sentence(part)}" for part in reason.parts)


def _nodes_held(reason: Reason) -> str:
    count = reason.number("nodes")
    if not count:
        return "the quota of its queue is held for it"
    more = count - len(reason.subject.split())
    names = ", ".join(reason.subject.split()) + (f" and {more} more" if more > 0 else "")
    return f"{many(count, 'node is', 'nodes are')} held for it: {names}"


def _closest(reason: Reason) -> str:
    """Names only the cliques that do not fit. If each clique fits by itself, it says that instead."""
    where = f"{reason.names['level']} {reason.subject}"
    short = [part for part in reason.parts if part.number("room") < part.number("pods")]
    if not reason.parts:
        return f"{where} comes closest"
    if reason.number("each") or not short:
        if len(reason.parts) == 1:
            return f"{where} has enough free, but no way to divide it among its nodes works"
        return (
            f"{where} has capacity for each of the {len(reason.parts)} cliques alone, but not for all of them together"
        )
    capacities = ", ".join(f"{part.subject} {part.number('room')}/{part.number('pods')}" for part in short)
    capacity = f"capacity for {capacities} pods{' each by itself' if len(short) > 1 else ''}"
    return f"{where} has {capacity}" if reason.number("pinned") else f"{where} comes closest, with {capacity}"


def _pinned(reason: Reason) -> str:
    """Which domain running pods keep the rest in, where it is only one."""
    where = reason.names.get("where", "")
    domain = f"{reason.names.get('level', 'domain')} {where}" if where else "a domain"
    return f"{domain} has no capacity for the rest of {reason.subject}, which running pods keep there"


def _together(reason: Reason) -> str:
    text = f"{many_pods(reason)} must be placed together"
    preference = reason.part(kinds.NEEDS)
    return f"{text}; {sentence(preference)}" if preference is not None else text


def many_pods(reason: Reason) -> str:
    return many(reason.number("pods"), "pod")


def _packing(reason: Reason) -> str:
    if reason.names.get("by") == "affinity":
        return "pod affinity, anti-affinity or spread among the gang's own pods leaves no way to place it"
    return "the domains have enough capacity by every count, but no way to divide the pods among their nodes works"


def _base(reason: Reason) -> str:
    state = ", which does not exist" if reason.names.get("state") == "absent" else " to be scheduled"
    return f"waits for its base PodGang {reason.subject}{state}"


def _skew(reason: Reason) -> str:
    """Which domain has no capacity, and what the skew would be in the domain that has capacity."""
    level, full, domain = (reason.names.get(name, "") for name in ("level", "full", "domain"))
    text = f"{level} {full} has no capacity for {reason.subject}; in {domain} it would make"
    counts = ", ".join(sentence(part) for part in reason.parts_of(kinds.UNITS_IN))
    text = f"{text} the skew {reason.number('skew')}, and maxSkew is {reason.number('most')}"
    return f"{text} (now {counts})" if counts else text


def _missing(reason: Reason) -> str:
    return f"pods that the gang names do not exist, or have ended: {_some(reason.subject.split(), reason)}"


def _some(names: Sequence[str], reason: Reason) -> str:
    more = reason.number("pods") - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def _placed(reason: Reason) -> str:
    where = f" in {reason.names['level']} {reason.subject}" if reason.subject else ""
    return f"placed {many_pods(reason)}{where}, score {reason.numbers.get('score', 0.0):g}"


MISSING_SINCE = "pods are missing since the gang was placed"


def _lost(reason: Reason) -> str:
    lost = ", ".join(
        f"{part.subject} {part.number('room')}/{part.number('pods')}" for part in reason.parts_of(kinds.GROUP_CAPACITY)
    )
    why = [sentence(part) for part in reason.parts if part.kind != kinds.GROUP_CAPACITY]
    return "; ".join([*why, f"{MISSING_SINCE}: {lost}" if lost else MISSING_SINCE])  # a list has space for the cause


def _preempting(reason: Reason) -> str:
    text = f"evicting {many_pods(reason)} of lower priority"
    if reason.names.get("taken"):
        text = f"taking back its queue's share: evicting {many_pods(reason)}"
    if gangs := reason.names.get("gangs"):
        text += f", whole gangs: {gangs}"
    if alone := reason.names.get("alone"):
        text += f"{', and' if gangs else ':'} {alone}"
    return text + _budgets(reason)


def _kept(reason: Reason) -> str:
    return "its place is kept until the pods that are terminating there are gone" + _budgets(reason)


def _budgets(reason: Reason) -> str:
    budgets = reason.names.get("budgets")
    return f"; waits for disruption budgets {budgets}" if budgets else ""


def _quota(reason: Reason) -> str:
    """Which queue is full, at which level, and who below it holds more than is guaranteed to it."""
    name = reason.names.get("resource", "")
    used, limit, wanted = (format_amount(name, reason.number(key)) for key in ("used", "limit", "wanted"))
    rule = "is limited to" if reason.names.get("rule") != "guaranteed" else "is guaranteed"
    if leaving := reason.number("leaving"):
        used += f" ({format_amount(name, leaving)} of it on the way out)"
    if held := reason.number("held"):
        used += f", {format_amount(name, held)} are held for units ahead"
    text = f"queue {reason.subject} {rule} {limit} {name}, uses {used}, and {wanted} more are wanted"
    if (leaf := reason.names.get("of", "")) and leaf != reason.subject:
        text += f" by queue {leaf} below it"
    return "; ".join([text, *(sentence(part) for part in reason.parts_of(kinds.HOLDS_MORE))])


def _kept_quota(reason: Reason) -> str:
    name = reason.names.get("resource", "")
    kept, wanted, free = (format_amount(name, reason.number(key)) for key in ("kept", "wanted", "free"))
    text = (
        f"{wanted} {name} are wanted, {free} are free, of which {kept} are kept for {reason.names.get('by', 'others')}"
    )
    return f"queue {reason.subject} may not borrow: {text}, which does not lend"


def _holds_more(reason: Reason) -> str:
    name = reason.names.get("resource", "")
    used, own = (format_amount(name, reason.number(key)) for key in ("used", "guaranteed"))
    return f"{reason.subject} holds {used} with {own} guaranteed"


def _may_call_back(reason: Reason) -> str:
    """The sentence on taking back what other queues borrowed."""
    name = reason.names.get("resource", "")
    used, share, wanted = (format_amount(name, reason.number(key)) for key in ("used", "share", "wanted"))
    text = f"queue {reason.subject} uses {used} of its share of {share} {name}"
    if reason.names.get("over"):
        return f"{text}: with {wanted} more it would have more than its share, so nothing is called back for it"
    if not (lenders := reason.names.get("from", "")):
        return f"{text}, and no queue has more than its share: there is nothing to call back"
    return f"{text}: what {lenders} have above theirs may be called back for it"


def _timed_out(reason: Reason) -> str:
    limit_s = reason.numbers.get("seconds", 0.0)
    if not reason.parts:
        return f"the gang was not complete {limit_s:g} s after its first pod was bound"
    return f"not scheduled within {limit_s:g} s: {sentence(reason.parts[0])}"


def _rests_on(text: str) -> Callable[[Reason], str]:
    def say(reason: Reason) -> str:
        return text.format(subject=reason.subject, **{name: f"{n:g}" for name, n in reason.numbers.items()}) + "".join(
            f": {sentence(part)}" for part in reason.parts if part.kind not in _HELPFUL
        )

    return say


def _not_enough(reason: Reason) -> str:
    units = many(reason.number("units"), "unit")
    return _rests_on(f"would not fit even without the {units} of lower priority")(reason)


_WORDS: dict[str, Callable[[Reason], str]] = {
    kinds.MISSING_PODS: lambda reason: (
        f"group {reason.subject} needs {many(reason.number('minimum'), 'pod')} and has {reason.number('pods')}"
    ),
    kinds.UNKNOWN_LEVEL: lambda reason: (
        f"no node carries the label {reason.subject} that its topology constraint names"
    ),
    kinds.NO_NODE: _no_capacity,
    kinds.NO_CAPACITY: _no_capacity,
    kinds.NO_DOMAIN: lambda reason: (
        f"no {reason.names['level']} has capacity for {reason.subject} ({many_pods(reason)})"
    ),
    kinds.PINNED: _pinned,
    kinds.NO_PACKING: _packing,
    kinds.SPREAD_SKEW: _skew,
    kinds.SPREAD_HOME: lambda reason: f"the {reason.names['level']} of its running pods has no capacity for the rest",
    kinds.UNITS_IN: lambda reason: f"{reason.subject} {reason.number('units')}",
    kinds.NO_DEVICES: lambda reason: reason.names.get("why", "") or reason.subject,
    kinds.BUDGET_ENDED: lambda reason: f"no placement found in {reason.number('steps')} steps; the search did not end",
    kinds.NOT_ADMITTED: _rests_on("{subject}"),
    kinds.QUOTA_EXCEEDED: _quota,
    kinds.QUOTA_KEPT: _kept_quota,
    kinds.QUEUE_MISSING: lambda reason: f"there is no {reason.names.get('kind', 'queue')} {reason.subject}",
    kinds.QUEUE_INVALID: lambda reason: f"queue {reason.subject} cannot be used: {reason.names.get('why', '')}",
    kinds.QUEUE_NOT_LEAF: lambda reason: f"queue {reason.subject} has queues below it; gangs run in those",
    kinds.HOLDS_MORE: _holds_more,
    kinds.MAY_CALL_BACK: _may_call_back,
    kinds.SCORED: lambda reason: (
        f"{reason.subject}: {reason.number('got')} for this placement, {reason.number('most')} at most"
    ),
    kinds.NEEDS: _preference,
    kinds.NODES_FOR: _nodes_for,
    kinds.FILTERED: _filtered,
    kinds.INSUFFICIENT: _insufficient,
    kinds.OUTSIDE_BASE: lambda reason: f"{reason.number('nodes')} outside {reason.subject}, where its base gang is",
    kinds.HELD: _held,
    kinds.KEPT_OUT: _kept_out,
    kinds.NODES_HELD: _nodes_held,
    kinds.HEADROOM: _headroom,
    kinds.REPLICA_INCOMPLETE: lambda reason: (
        "a pod of the replica has no node; the scheduler looks for a place when all of them have one"
    ),
    kinds.HEADROOM_OF_OTHERS: lambda reason: f"it would fit, but capacity is held as headroom of {reason.subject}",
    kinds.QUOTA_OF_HEADROOM: lambda reason: f"it would fit, but its quota is held as headroom of {reason.subject}",
    kinds.CLOSEST: _closest,
    kinds.TOGETHER: _together,
    kinds.ONE_MORE: _one_more,
    kinds.SHARED_HOME: lambda reason: (
        f'the pods that share resourceclaim "{reason.subject}" must be on one node, '
        f"{reason.names['node']} was tried first"
    ),
    kinds.NO_PODS: lambda reason: "the gang names no pods",
    kinds.PODS_COMING: lambda reason: "its pods are still being created",
    kinds.PODS_MISSING: _missing,
    kinds.PODS_LEAVING: lambda reason: "some of its pods are being deleted",
    kinds.GATED: lambda reason: (
        "waits for Kueue to admit it" if reason.subject else "its pods are held by scheduling gates"
    ),
    kinds.BASE_WAITS: _base,
    kinds.INVALID: lambda reason: reason.subject,
    kinds.FITS: lambda reason: f"fits: {many_pods(reason)}, score {reason.numbers.get('score', 0.0):g}",
    kinds.STANDS: lambda reason: "every group has its minimum of pods on nodes",
    kinds.PLACED: _placed,
    kinds.PLACE_FREE: lambda reason: "its place is free now",
    kinds.PODS_LOST: _lost,
    kinds.BIND_FAILED: lambda reason: f"a pod could not be bound: {reason.subject}",
    kinds.TIMED_OUT: _timed_out,
    kinds.PREEMPTING: _preempting,
    kinds.KEPT_PLACE: _kept,
    kinds.NEVER_PREEMPTS: lambda reason: "its priority class does not preempt",
    kinds.NONE_LOWER: lambda reason: f"nothing of a priority below {reason.number('priority')} runs",
    kinds.LEAVING: lambda reason: "fits once the pods that are terminating are gone",
    kinds.NOT_ENOUGH: _not_enough,
    kinds.BUDGETS: lambda reason: f"{PROTECTED} {reason.subject}",
    kinds.NO_SMALL_SET: _rests_on("no small enough set of victims found"),
    kinds.NOT_ENOUGH_FREE: _rests_on("not enough is free, so moves of other gangs do not help"),
    kinds.NONE_MAY_MOVE: lambda reason: "no running gang may be moved: no set allows it, or budgets protect them",
    kinds.NO_MOVES: lambda reason: (
        f"no moves of the {many(reason.number('gangs'), 'gang')} that may be moved make it fit"
    ),
}
