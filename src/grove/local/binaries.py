"""Find the five Kubernetes programs of one version on this machine, or build them.

The search goes from what the user named (GROVE_KUBE_BIN, KUBEBUILDER_ASSETS) over the cache of earlier
builds to a build from source. Standard library only: `make kube-bin` calls this before any package is installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
DEFAULT_VERSION = "1.36.3"
# The patch release meant when only "1.35" is asked for and it has to be built.
PATCH_RELEASES = {"1.35": "1.35.4", "1.36": "1.36.3"}

Say = Callable[[str], None]


class BinariesError(RuntimeError):
    """The programs could be neither found nor built; the message says what to do about it."""


def to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def normalise(version: str) -> str:
    """`v1.36.3` and `1.36.3` are one version; anything else than digits and dots is a mistake."""
    bare = version.strip().removeprefix("v")
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", bare):
        raise BinariesError(f"{version!r} is not a Kubernetes version; say for example {DEFAULT_VERSION}")
    return bare


def release(version: str) -> str:
    """The full release for a version: a minor such as `1.35` stands for its pinned patch release."""
    bare = normalise(version)
    if bare.count(".") == 2:
        return bare
    if bare not in PATCH_RELEASES:
        known = ", ".join(sorted(PATCH_RELEASES.values()))
        raise BinariesError(f"which patch release of {bare}? Name it in full; pinned ones are {known}")
    return PATCH_RELEASES[bare]


def cache_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or ""
    # The XDG rules say that a relative path there is to be ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "grove" / "kube"


def missing_programs(directory: Path) -> list[str]:
    return [name for name in PROGRAMS if not os.access(directory / name, os.X_OK)]


def server_version(directory: Path) -> str | None:
    """The version that `kube-apiserver --version` prints, without the leading v; None if it does not run here."""
    try:
        done = subprocess.run(
            [str(directory / "kube-apiserver"), "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"v(\d+\.\d+\.\d+\S*)", done.stdout)
    return match.group(1) if match else None


def why_unusable(directory: Path, version: str) -> str | None:
    """None if the directory has all programs of that version, otherwise the reason in plain words."""
    if not directory.is_dir():
        return "no such directory"
    if lacking := missing_programs(directory):
        return "lacks " + ", ".join(lacking)
    actual = server_version(directory)
    if actual is None:
        return "its kube-apiserver does not run on this machine"
    if actual != version and not actual.startswith(version + "."):
        return f"holds {actual}, not {version}"
    return None


def _named_by_user() -> Iterator[tuple[str, Path]]:
    for variable in ("GROVE_KUBE_BIN", "KUBEBUILDER_ASSETS"):
        if value := os.environ.get(variable):
            yield variable, Path(value).expanduser().absolute()


def find(version: str, *, say: Say = to_stderr) -> Path | None:
    """The directory with the programs of that version, or None. Says why a directory the user named is passed over."""
    asked = normalise(version)
    for variable, directory in _named_by_user():
        # A directory may hold one version directly or several in sub-directories; the exact sub-directory wins.
        for candidate in (directory / asked, directory / f"v{asked}", directory):
            if (candidate == directory or candidate.is_dir()) and why_unusable(candidate, asked) is None:
                return candidate
        say(f"{variable}={directory} is passed over: {why_unusable(directory, asked)}")
    cached = cache_root() / release(asked)
    return cached if why_unusable(cached, asked) is None else None


def find_or_build(version: str, *, say: Say = to_stderr) -> Path:
    """The directory that holds the five programs of `version`, built from source if it is not there yet."""
    path = find(version, say=say)
    if path is not None:
        return path
    # Few starts build anything.
    from grove.local import gobuild  # noqa: PLC0415

    return gobuild.build(release(version), cache_root(), say=say)
