"""The operator's configuration reaches the rules."""

from __future__ import annotations

from pathlib import Path

from tests.support.manifests import clique, pcs
from tests.support.reviews import changed, faults, plain

from grove.admission.serving.wiring import admission_of, webhook_settings
from grove.backends import build_backends
from grove.config import load_configuration

TEXT = """
apiVersion: operator.config.grove.io/v1alpha1
kind: OperatorConfiguration
server:
  webhooks: {bindAddress: 127.0.0.1, port: 9443, serverCertDir: /certs, secretName: mine, certProvisionMode: manual}
authorizer: {enabled: true, exemptServiceAccountUserNames: ["system:serviceaccount:dynamo:operator"]}
topologyAwareScheduling: {enabled: true}
network: {autoMNNVLEnabled: true}
scheduler:
  defaultProfileName: grove-scheduler
  profiles: [{name: grove-scheduler}, {name: default-scheduler}]
"""
CONFIG = load_configuration(TEXT)


def test_settings_of_the_server() -> None:
    settings = webhook_settings(CONFIG, namespace="grove-system", url="https://127.0.0.1:9443")
    assert (settings.host, settings.port, settings.mode) == ("127.0.0.1", 9443, "manual")
    assert (settings.cert_dir, settings.secret_name) == (Path("/certs"), "mine")
    assert settings.names[0] == "127.0.0.1"


def test_settings_of_the_rules() -> None:
    backends = build_backends(CONFIG.scheduler)
    admission = admission_of(CONFIG, backends, namespace="grove-system", operator_users=["me", ""])
    assert admission.topology_enabled
    assert admission.mnnvl_enabled
    assert {one.name for one in admission.backends.all} == {"grove-scheduler", "default-scheduler"}
    assert admission.authorizer is not None
    assert admission.authorizer.operator_users == {"me"}
    assert "system:serviceaccount:dynamo:operator" in admission.authorizer.exempt
    assert "system:serviceaccount:grove-system:grove-scheduler" in admission.authorizer.exempt
    assert faults(admission, plain()) == []
    assert faults(admission, pcs("demo", clique("a", schedulerName="volcano"))) == [
        'spec.template.cliques.spec.podSpec.schedulerName: Invalid value: "volcano": scheduler is not enabled in the '
        "operator configuration, which has: default-scheduler, grove-scheduler; an administrator adds it to "
        "scheduler.profiles there"
    ]


def test_without_the_authorizer_there_is_no_guard() -> None:
    config = load_configuration("")
    admission = admission_of(config, build_backends(config.scheduler), namespace="x", operator_users=["me"])
    assert admission.authorizer is None
    rack = {"topologyName": "cluster", "pack": {"required": "rack"}}
    assert len(faults(admission, changed(plain(), ("spec.template.topologyConstraint", rack)))) == 1
