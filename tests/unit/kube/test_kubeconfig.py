"""Finding the cluster: files, merging, order, and one clear line for whatever is wrong."""

import base64
import errno
import json
import os
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from grove.kube.config import load_config
from grove.kube.connection import ClusterConfig
from grove.kube.credentials import Credential, ExecPlugin, Fixed, TokenFile
from grove.kube.errors import ConfigError


def certificate(days: int = 1) -> tuple[bytes, bytes]:
    """A self-signed certificate that ends after this number of days, and its key, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")])
    now = datetime.now(UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=30))
        .not_valid_after(now + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return cert.public_bytes(serialization.Encoding.PEM), pem


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def kubeconfig(
    folder: Path, name: str = "config", *, user: str = "token: t", cluster: str = "", more: str = ""
) -> Path:
    """A kubeconfig with one context `here`; `user` and `cluster` are YAML flow fragments."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        textwrap.dedent(
            f"""\
            apiVersion: v1
            kind: Config
            current-context: here
            clusters: [{{name: c, cluster: {{server: "https://10.1.2.3:6443"{", " + cluster if cluster else ""}}}}}]
            users: [{{name: u, user: {{{user}}}}}]
            contexts: [{{name: here, context: {{cluster: c, user: u, namespace: team}}}}]
            {more}
            """
        )
    )
    return path


async def credential(config: ClusterConfig) -> Credential:
    return await config.credentials.current()


async def test_a_token_and_what_surrounds_it(tmp_path: Path) -> None:
    cluster = "tls-server-name: kube.example, proxy-url: 'http://proxy:3128', insecure-skip-tls-verify: true"
    path = kubeconfig(tmp_path, cluster=cluster, user="token: secret, as: jane")
    config = load_config(path)
    assert config.server == "https://10.1.2.3:6443"
    assert (config.tls_server_name, config.proxy_url, config.insecure) == ("kube.example", "http://proxy:3128", True)
    assert (config.namespace, config.impersonate) == ("team", "jane")
    assert config.source == f"{path} (context here)"
    assert await credential(config) == Credential("secret")
    assert "secret" not in repr(await credential(config))


async def test_client_certificates_from_data_and_from_files(tmp_path: Path) -> None:
    cert, key = certificate()
    inline = load_config(
        kubeconfig(tmp_path, user=f"client-certificate-data: {b64(cert)}, client-key-data: {b64(key)}")
    )
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "me.crt").write_bytes(cert)
    (tmp_path / "pki" / "me.key").write_bytes(key)
    files = load_config(kubeconfig(tmp_path, user="client-certificate: pki/me.crt, client-key: pki/me.key"))
    assert await credential(inline) == await credential(files) == Credential("", cert, key)


async def test_the_authority_from_data_wins_over_a_file(tmp_path: Path) -> None:
    cert, _ = certificate()
    path = kubeconfig(tmp_path, cluster=f"certificate-authority-data: {b64(cert)}, certificate-authority: missing.crt")
    assert load_config(path).ca == cert


async def test_a_token_file_wins_over_a_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from file\n")
    config = load_config(kubeconfig(tmp_path, user="token: t, tokenFile: token"))
    assert isinstance(config.credentials, TokenFile)
    assert (await credential(config)).token == "from file"


async def test_an_exec_plugin_is_taken_when_nothing_else_is_given(tmp_path: Path) -> None:
    plugin = "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./get-token, args: [a], env: null}"
    assert isinstance(load_config(kubeconfig(tmp_path, user=plugin)).credentials, ExecPlugin)


async def test_an_exec_plugin_gets_the_cluster_if_it_asks_for_it(tmp_path: Path) -> None:
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}
    (tmp_path / "get-token").write_text(
        f"#!/bin/sh\nprintf '%s' \"$KUBERNETES_EXEC_INFO\" > seen\nprintf '%s' '{json.dumps(answer)}'\n"
    )
    (tmp_path / "get-token").chmod(0o755)
    command = f"sh, args: [-c, 'cd {tmp_path} && ./get-token'], interactiveMode: Never"
    plugin = f"exec: {{apiVersion: client.authentication.k8s.io/v1, provideClusterInfo: true, command: {command}}}"
    cert, _ = certificate()
    cluster = f"tls-server-name: kube, proxy-url: 'http://proxy:1', certificate-authority-data: {b64(cert)}"
    assert (await credential(load_config(kubeconfig(tmp_path, cluster=cluster, user=plugin)))).token == "t"
    assert json.loads((tmp_path / "seen").read_text())["spec"]["cluster"] == {
        "server": "https://10.1.2.3:6443",
        "insecure-skip-tls-verify": False,
        "tls-server-name": "kube",
        "proxy-url": "http://proxy:1",
        "certificate-authority-data": b64(cert),
    }


def test_several_files_are_merged_and_the_first_to_name_a_thing_wins(tmp_path: Path) -> None:
    first = tmp_path / "a" / "config"
    first.parent.mkdir()
    first.write_text("contexts: [{name: here, context: {cluster: c, user: u, namespace: first}}]\nusers: null\n")
    cert, _ = certificate()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "ca.crt").write_bytes(cert)
    second = kubeconfig(tmp_path, "b/config", cluster="certificate-authority: ca.crt")
    env = {"KUBECONFIG": f"{first}:{tmp_path / 'missing'}:{second}"}
    config = load_config(env=env)
    assert (config.namespace, config.ca) == ("first", cert)


def in_pod(folder: Path) -> tuple[dict[str, str], Path]:
    account = folder / "account"
    account.mkdir()
    cert, _ = certificate()
    for name, content in (("token", b"pod-token"), ("ca.crt", cert), ("namespace", b"grove-system\n")):
        (account / name).write_bytes(content)
    return {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}, account


async def test_the_order_is_flag_then_kubeconfig_then_home_then_the_pod(tmp_path: Path) -> None:
    pod, account = in_pod(tmp_path)
    home = tmp_path / "home"
    kubeconfig(home / ".kube", user="token: from-home")
    named = kubeconfig(tmp_path, "named", user="token: from-env")
    flag = kubeconfig(tmp_path, "flag", user="token: from-flag")

    async def token(flag_path: Path | None, env: dict[str, str]) -> str:
        return (await credential(load_config(flag_path, env=env, home=home, service_account=account))).token

    everything = {"KUBECONFIG": str(named), **pod}
    assert await token(flag, everything) == "from-flag"
    assert await token(None, everything) == "from-env"
    assert await token(None, pod) == "from-home"
    assert await token(None, {"KUBECONFIG": ""}) == "from-home"
    (home / ".kube" / "config").unlink()
    assert await token(None, pod) == "pod-token"


def test_a_context_is_never_the_cluster_of_the_pod_we_run_in(tmp_path: Path) -> None:
    """A named context is used or refused; a command that writes must not act on another cluster."""
    pod, account = in_pod(tmp_path)
    with pytest.raises(ConfigError, match=r"no context 'prod': there is no .*/.kube/config, and a pod has no contexts"):
        load_config(context="prod", env=pod, home=tmp_path / "home", service_account=account)
    kubeconfig(tmp_path / "home" / ".kube")
    with pytest.raises(ConfigError, match=r"no context 'prod' \(it has: here\)"):
        load_config(context="prod", env=pod, home=tmp_path / "home", service_account=account)
    config = load_config(context="here", env=pod, home=tmp_path / "home", service_account=account)
    assert config.server == "https://10.1.2.3:6443"


@pytest.mark.parametrize(
    "home",
    [
        pytest.param("", id="nobody knows where it is"),
        pytest.param("closed", id="it belongs to another user"),
    ],
)
def test_a_process_without_a_home_takes_the_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    """As one does that runs as another user than its image was made for."""
    pod, account = in_pod(tmp_path)
    kubeconfig(tmp_path / "closed" / ".kube")
    monkeypatch.setenv("HOME", str(tmp_path / home))
    if not home:
        monkeypatch.delenv("HOME")
        monkeypatch.setattr("pwd.getpwuid", lambda _uid: {}[0])
    look = os.stat

    def stat(path: Any, *args: Any, **more: Any) -> os.stat_result:
        if "closed" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied")
        return look(path, *args, **more)

    monkeypatch.setattr(os, "stat", stat)
    assert load_config(env=pod, service_account=account).source == "in-cluster"


def test_in_a_pod(tmp_path: Path) -> None:
    env, account = in_pod(tmp_path)
    config = load_config(env=env, home=tmp_path, service_account=account)
    assert (config.server, config.namespace, config.source) == ("https://10.0.0.1:443", "grove-system", "in-cluster")
    assert not config.compress
    v6 = load_config(env={**env, "KUBERNETES_SERVICE_HOST": "fd00::1"}, home=tmp_path, service_account=account)
    assert v6.server == "https://[fd00::1]:443"


@pytest.mark.parametrize(
    ("server", "env", "want"),
    [
        pytest.param("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://p:1"}, None, id="never for loopback"),
        pytest.param("https://localhost:6443", {"HTTPS_PROXY": "http://p:1"}, None, id="nor for localhost"),
        pytest.param("https://[::1]:6443", {"HTTPS_PROXY": "http://p:1"}, None, id="nor for loopback in IPv6"),
        pytest.param("https://api.example:6443", {"HTTPS_PROXY": "http://p:1"}, "http://p:1", id="for the world"),
        pytest.param(
            "https://api.example", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".example"}, None, id="not when excluded"
        ),
        pytest.param("https://api.example", {}, None, id="none is set"),
    ],
)
def test_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch, server, env, want) -> None:
    for name in (
        "https_proxy",
        "http_proxy",
        "no_proxy",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "NO_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert ClusterConfig(server=server).proxy() == want
    assert ClusterConfig(server=server, proxy_url="http://own:1").proxy() == "http://own:1"


def test_gzip_is_for_long_lines_only(tmp_path: Path) -> None:
    assert load_config(kubeconfig(tmp_path)).compress
    assert not load_config(kubeconfig(tmp_path, cluster="disable-compression: true")).compress


ONE_CONTEXT = "contexts: [{name: a, context: {cluster: c, user: u}}]"
CERT, KEY = certificate()
OLD, OLD_KEY = certificate(days=-1)


def test_null_is_absent(tmp_path: Path) -> None:
    """As kubectl has it, and as tools write what they do not know."""
    absent = (
        "insecure-skip-tls-verify: null, certificate-authority-data: null, tls-server-name: null, proxy-url: ~, "
        "disable-compression: null"
    )
    plugin = "exec: {command: x, apiVersion: client.authentication.k8s.io/v1, args: null, installHint: null}"
    path = kubeconfig(tmp_path, user=f"token: null, client-key: null, as: null, {plugin}", cluster=absent)
    path.write_text(path.read_text().replace("namespace: team", "namespace: null"))
    config = load_config(path)
    assert (config.namespace, config.insecure, config.impersonate) == ("default", False, "")
    assert isinstance(config.credentials, ExecPlugin)
    path.write_text(path.read_text().replace("user: u,", "user: null,") + "preferences: null\n")
    assert isinstance(load_config(path, "here").credentials, Fixed)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({"user": "auth-provider: {name: gcp}"}, "auth-provider was removed", id="a removed way to log in"),
        pytest.param(
            {"user": f"client-certificate-data: {b64(CERT)}"}, "come together", id="a certificate without key"
        ),
        pytest.param(
            {"user": "client-certificate-data: '***'"}, "client-certificate-data is not base64", id="no base64"
        ),
        pytest.param(
            {"cluster": "certificate-authority-data: é"},
            "certificate-authority-data is not base64",
            id="nor letters of it",
        ),
        pytest.param({"cluster": "proxy-url: 'http://[::1'"}, r"only http and https proxies", id="half an address"),
        pytest.param(
            {"user": "client-certificate: no.crt, client-key: no.key"},
            "cannot read the client-certificate .*no.crt: No such file",
            id="a missing file",
        ),
        pytest.param(
            {"user": f"client-certificate-data: {b64(OLD)}, client-key-data: {b64(OLD_KEY)}"},
            "the client certificate expired on ",
            id="an expired certificate",
        ),
        pytest.param(
            {"user": f"client-certificate-data: {b64(b'x')}, client-key-data: {b64(KEY)}"},
            "the client certificate is not valid PEM",
            id="no certificate at all",
        ),
        pytest.param(
            {"user": "token: [1]"},
            r"not one: Expected `str`, got `array` - at `\$.users\[0\].user.token`",
            id="a value of the wrong type",
        ),
        pytest.param(
            {"user": "exec: {command: x, apiVersion: client.authentication.k8s.io/v1alpha1}"},
            "v1alpha1' is not served",
            id="an exec version of the past",
        ),
        pytest.param(
            {"user": "exec: {command: x, apiVersion: v1, interactiveMode: Always}"},
            "needs a terminal",
            id="an exec plugin that wants to talk",
        ),
        pytest.param(
            {"cluster": "proxy-url: 'socks5://p:1'"}, "only http and https proxies", id="a proxy we cannot use"
        ),
        pytest.param({"more": "  bad: [indent"}, "is not YAML in line", id="broken YAML"),
    ],
)
def test_a_broken_kubeconfig_says_what_is_wrong_in_one_line(
    tmp_path: Path, options: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        load_config(kubeconfig(tmp_path, **options))
    assert "\n" not in str(raised.value)
    assert str(tmp_path) in str(raised.value) or "exec plugin" in str(raised.value)


@pytest.mark.parametrize(
    ("content", "context", "words"),
    [
        pytest.param("", "", "no current-context", id="an empty file"),
        pytest.param("just words", "", "is not one", id="not a mapping"),
        pytest.param(ONE_CONTEXT, "", "no context was given; it has a", id="none chosen"),
        pytest.param(ONE_CONTEXT, "b", r"no context 'b' \(it has: a\)", id="unknown context"),
        pytest.param(ONE_CONTEXT, "a", r"no cluster 'c' \(it has: none\)", id="unknown cluster"),
        pytest.param(
            f"{ONE_CONTEXT}\nclusters: [{{name: c, cluster: {{server: 'https://x'}}}}]",
            "a",
            r"no user 'u' \(it has: none\)",
            id="unknown user",
        ),
        pytest.param(
            f"{ONE_CONTEXT}\nclusters: [{{name: c, cluster: {{server: '10.1.2.3'}}}}]\nusers: [{{name: u}}]",
            "a",
            "server '10.1.2.3' is not an http or https address",
            id="an address without a scheme",
        ),
        pytest.param(
            f"{ONE_CONTEXT}\nclusters: [{{name: c, cluster: {{server: 'https://[fd00::1'}}}}]\nusers: [{{name: u}}]",
            "a",
            r"server 'https://\[fd00::1' is not an http or https address",
            id="half an address",
        ),
        pytest.param(
            f"{ONE_CONTEXT}\nclusters: [{{name: c, cluster: {{server: 'https://x:99999'}}}}]\nusers: [{{name: u}}]",
            "a",
            "server 'https://x:99999' is not an http or https address",
            id="a port that is none",
        ),
    ],
)
def test_a_kubeconfig_that_does_not_hang_together(tmp_path: Path, content: str, context: str, words: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ConfigError, match=words):
        load_config(path, context)


def test_no_cluster_anywhere_says_where_one_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give --kubeconfig, set KUBECONFIG, run in a pod, or have"):
        load_config(env={}, home=tmp_path)
    with pytest.raises(ConfigError, match=r"cannot read the kubeconfig .*missing: No such file"):
        load_config(tmp_path / "missing")
    with pytest.raises(ConfigError, match="none of the files of KUBECONFIG exists"):
        load_config(env={"KUBECONFIG": f"{tmp_path}/x:{tmp_path}/y"})
    with pytest.raises(ConfigError, match="without a service account token"):
        load_config(env={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, home=tmp_path, service_account=tmp_path)
