"""vc-scheduler's own configuration: whether it looks at topology at all.

A PodGroup's `networkTopology` has an effect only where the plugin `network-topology-aware` is on, and Volcano's chart
installs a configuration without it. vc-scheduler reads its configuration from a ConfigMap.
"""

from __future__ import annotations

from typing import Any

import yaml

from grove.api.core import ConfigMap
from grove.backends.base import Question

PLUGIN = "network-topology-aware"
FILE = "volcano-scheduler.conf"
CONFIG_MAP = "volcano-system/volcano-scheduler-configmap"
"""Where Volcano's chart puts it, in a release called `volcano`."""
LINES = f"- name: {PLUGIN}"
"""What to add to one of the lists `plugins` in that file."""


def config_question(place: str) -> Question:
    """Asks for the ConfigMap; `place` is its namespace and name."""
    namespace, _, name = place.rpartition("/")
    return Question("config", "get", ConfigMap.RESOURCE, object_name=name, namespace=namespace)


def has_plugin(config_map: Any, plugin: str = PLUGIN) -> bool | None:
    """True if vc-scheduler runs with a plugin. None if its configuration is not readable."""
    text = ((config_map or {}).get("data") or {}).get(FILE)
    if text is None:
        return None
    try:
        tiers = (yaml.safe_load(text) or {}).get("tiers") or ()
        return any(entry.get("name") == plugin for tier in tiers for entry in tier.get("plugins") or ())
    except (yaml.YAMLError, AttributeError, TypeError):
        return None


def switch_on(place: str) -> str:
    return f"add `{LINES}` to a list of plugins in {FILE} of the ConfigMap {place}"
