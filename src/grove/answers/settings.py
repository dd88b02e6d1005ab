"""How the cluster's own scheduler is set up, so that answers of this program are those it would give.

The chart keeps the settings in a ConfigMap. Who may not read it, or runs the scheduler another way, gives the same file
with `--scheduler-config`; otherwise the defaults have to do.
"""

from __future__ import annotations

from pathlib import Path

from grove.answers.answer import Unanswered
from grove.api.core import ConfigMap
from grove.api.labels import GROVE_SCHEDULER, NAME
from grove.kube.client import Client
from grove.kube.errors import Forbidden
from grove.scheduler.model.config import InvalidConfig, SchedulerConfiguration, load_configuration

FILE = "config.yaml"
"""Its key in the ConfigMap."""


def settings_in(file: Path) -> SchedulerConfiguration:
    try:
        return load_configuration(file.read_text())
    except (InvalidConfig, UnicodeDecodeError) as error:
        raise Unanswered(f"{file}: {error}") from error


async def settings_of(client: Client) -> SchedulerConfiguration:
    """The settings in the newest ConfigMap of the scheduler; the defaults if there is none to be read."""
    try:
        items = (await client.list(ConfigMap, labels=f"{NAME}={GROVE_SCHEDULER}")).items
    except Forbidden:
        return SchedulerConfiguration()
    written = [config_map for config_map in items if FILE in config_map.data]
    if not written:
        return SchedulerConfiguration()
    newest = max(
        written, key=lambda config_map: (str(config_map.metadata.creation_timestamp or ""), config_map.metadata.name)
    )
    try:
        return load_configuration(newest.data[FILE])
    except InvalidConfig as error:
        where = f"ConfigMap {newest.metadata.namespace}/{newest.metadata.name}"
        raise Unanswered(f"{where}: {error}; --scheduler-config names another file") from error
