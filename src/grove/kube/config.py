"""Finds the API server: the file a person names, `KUBECONFIG`, `~/.kube/config`, else the pod we run in.

It reads what kubectl reads and merges several files in the same way. The first file that names a thing wins, and
relative paths belong to the file that has them. Every fault becomes a ConfigError of one line with the place of the
fault.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml

from grove.kube.connection import ClusterConfig, check_not_expired
from grove.kube.credentials import Credential, CredentialSource, ExecPlugin, Fixed, TokenFile
from grove.kube.errors import ConfigError

__all__ = ["ClusterConfig", "from_files", "in_cluster", "load_config"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

E = TypeVar("E", bound="_Named")


class _Section(msgspec.Struct, rename="kebab", kw_only=True):
    pass


class _Cluster(_Section):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    disable_compression: bool = False


class _EnvVar(_Section):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, rename="camel", kw_only=True):
    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[_EnvVar] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class _User(_Section):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    exec: _Exec | None = None
    auth_provider: Any = None
    as_: str = msgspec.field(name="as", default="")


class _Context(_Section):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _Named(_Section):
    name: str


class _NamedCluster(_Named):
    cluster: _Cluster


class _NamedUser(_Named):
    user: _User | None = None


class _NamedContext(_Named):
    context: _Context


class _File(_Section):
    current_context: str = ""
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


class _Merged(msgspec.Struct):
    """Every named thing of all files, with the file it stands in; `where` names them all for messages."""

    where: str
    current_context: str = ""
    clusters: dict[str, tuple[Path, _NamedCluster]] = {}
    users: dict[str, tuple[Path, _NamedUser]] = {}
    contexts: dict[str, tuple[Path, _NamedContext]] = {}


def load_config(
    kubeconfig: str | os.PathLike[str] | None = None,
    context: str = "",
    *,
    env: Mapping[str, str] = os.environ,
    home: Path | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> ClusterConfig:
    """The cluster to talk to. `kubeconfig` and `context` are what a person gave on the command line, if anything.

    The pod we run in comes last, as for kubectl. It is never used if the person named a context, because a command
    could then write to another cluster than the person meant.
    """
    if kubeconfig:
        return from_files([Path(kubeconfig)], context)
    named = [Path(part) for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]
    if named:
        return from_files(named, context, missing_ok=len(named) > 1)
    # Neither may raise: a process in a pod may have no home, or one that is closed to it.
    default = (home or Path(os.path.expanduser("~"))) / ".kube" / "config"
    if os.path.exists(default):
        return from_files([default], context)
    if not env.get("KUBERNETES_SERVICE_HOST"):
        raise ConfigError(f"no cluster: give --kubeconfig, set KUBECONFIG, run in a pod, or have {default}")
    if context:
        raise ConfigError(f"no context {context!r}: there is no {default}, and a pod has no contexts")
    return in_cluster(env, service_account)


def in_cluster(env: Mapping[str, str] = os.environ, service_account: Path = SERVICE_ACCOUNT) -> ClusterConfig:
    """The cluster of the pod we run in; its token is read again when it is rotated."""
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError("not in a pod: KUBERNETES_SERVICE_HOST is not set")
    token = service_account / "token"
    if not token.exists():
        raise ConfigError(f"in a pod without a service account token: {token} is missing")
    namespace = service_account / "namespace"
    return ClusterConfig(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        credentials=TokenFile(token),
        ca=_read(service_account / "ca.crt", "in-cluster certificate authority"),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        source="in-cluster",
    )


def from_files(paths: Sequence[Path], context: str = "", *, missing_ok: bool = False) -> ClusterConfig:
    merged = _merge(paths, missing_ok)
    name = context or merged.current_context
    if not name:
        known = f"; it has {', '.join(sorted(merged.contexts))}" if merged.contexts else ""
        raise ConfigError(f"{merged.where}: no current-context is set and no context was given{known}")
    _, chosen = _look_up(merged.contexts, name, "context", merged.where)
    cluster_path, named_cluster = _look_up(merged.clusters, chosen.context.cluster, "cluster", merged.where)
    source = f"{cluster_path} (context {name})"
    cluster = named_cluster.cluster
    user, user_path = _User(), cluster_path
    if chosen.context.user:
        user_path, named_user = _look_up(merged.users, chosen.context.user, "user", merged.where)
        user = named_user.user or _User()
    server = cluster.server.rstrip("/")
    if not _is_address(server):
        raise ConfigError(f"{source}: server {server!r} is not an http or https address")
    if cluster.proxy_url and not _is_address(cluster.proxy_url):
        raise ConfigError(f"{source}: proxy-url {cluster.proxy_url!r}: only http and https proxies are supported")
    ca = _pem(cluster.certificate_authority_data, cluster.certificate_authority, cluster_path, "certificate-authority")
    is_far = not ClusterConfig(server=server).is_loopback
    return ClusterConfig(
        server=server,
        ca=ca,
        insecure=cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name,
        proxy_url=cluster.proxy_url,
        namespace=chosen.context.namespace or "default",
        impersonate=user.as_,
        credentials=_credentials(user, user_path, source, cluster, ca),
        source=source,
        compress=is_far and not cluster.disable_compression,
    )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # half of an IPv6 address, or a port that is none
        return False


def _merge(paths: Sequence[Path], missing_ok: bool) -> _Merged:
    merged = _Merged(where=os.pathsep.join(str(path) for path in paths))
    has_file = False
    for path in paths:
        if missing_ok and not path.exists():
            continue
        has_file = True
        file = _parse(path)
        merged.current_context = merged.current_context or file.current_context
        _fill(merged.clusters, file.clusters, path)
        _fill(merged.users, file.users, path)
        _fill(merged.contexts, file.contexts, path)
    if not has_file:
        raise ConfigError(f"none of the files of KUBECONFIG exists: {merged.where}")
    return merged


def _fill(known: dict[str, tuple[Path, E]], entries: Sequence[E] | None, path: Path) -> None:
    for entry in entries or ():
        known.setdefault(entry.name, (path, entry))


def _parse(path: Path) -> _File:
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as err:
        raise ConfigError(f"cannot read the kubeconfig {path}: {err.strerror or err}") from err
    except UnicodeDecodeError as err:
        raise ConfigError(f"the kubeconfig {path} is not text") from err
    except yaml.YAMLError as err:
        mark = getattr(err, "problem_mark", None)
        at = f" in line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"the kubeconfig {path} is not YAML{at}: {getattr(err, 'problem', None) or err}") from err
    try:
        return msgspec.convert(_without_nulls(content) or {}, _File)
    except msgspec.ValidationError as err:
        raise ConfigError(f"the kubeconfig {path} is not one: {err}") from err


def _without_nulls(value: Any) -> Any:
    """A field that is null is one that is not there, as for kubectl."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _look_up(named: Mapping[str, tuple[Path, E]], name: str, what: str, where: str) -> tuple[Path, E]:
    entry = named.get(name)
    if entry is None:
        known = ", ".join(sorted(named)) or "none"
        raise ConfigError(f"{where}: there is no {what} {name!r} (it has: {known})")
    return entry


def _credentials(user: _User, path: Path, source: str, cluster: _Cluster, ca: bytes) -> CredentialSource:
    if user.auth_provider is not None:
        raise ConfigError(f"{source}: auth-provider was removed from Kubernetes; use an exec plugin")
    cert = _pem(user.client_certificate_data, user.client_certificate, path, "client-certificate")
    key = _pem(user.client_key_data, user.client_key, path, "client-key")
    if bool(cert) != bool(key):
        raise ConfigError(f"{source}: a client certificate and its key come together or not at all")
    if cert:
        check_not_expired(cert, source)
    if user.token_file:
        return TokenFile(path.parent / user.token_file, Credential(user.token, cert, key))
    if user.token or cert or user.exec is None:
        return Fixed(Credential(user.token, cert, key))
    return _exec_plugin(user.exec, path, source, cluster, ca)


def _exec_plugin(plugin: _Exec, path: Path, source: str, cluster: _Cluster, ca: bytes) -> ExecPlugin:
    if plugin.interactive_mode == "Always":
        raise ConfigError(f"{source}: the exec plugin {plugin.command} needs a terminal (interactiveMode: Always)")
    command = plugin.command
    if os.sep in command:
        command = str(path.parent / command)
    about: dict[str, Any] | None = None
    if plugin.provide_cluster_info:
        about = {"server": cluster.server, "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify}
        if ca:
            about["certificate-authority-data"] = base64.b64encode(ca).decode()
        if cluster.tls_server_name:
            about["tls-server-name"] = cluster.tls_server_name
        if cluster.proxy_url:
            about["proxy-url"] = cluster.proxy_url
    return ExecPlugin(
        [command, *(plugin.args or ())],
        api_version=plugin.api_version,
        install_hint=plugin.install_hint,
        env={env_var.name: env_var.value for env_var in plugin.env or ()},
        cluster=about,
    )


def _pem(inline: str, file: str, path: Path, what: str) -> bytes:
    """The bytes given inline (they win, as for kubectl) or in a file; empty when neither is."""
    if inline:
        try:
            return base64.b64decode(inline, validate=True)
        except ValueError as err:
            raise ConfigError(f"{path}: {what}-data is not base64") from err
    return _read(path.parent / file, what) if file else b""


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as err:
        raise ConfigError(f"cannot read the {what} {path}: {err.strerror or err}") from err
