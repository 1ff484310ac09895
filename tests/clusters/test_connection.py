"""A kubeconfig is somebody's text: it may neither run nor read anything on the portal's machine."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from workloads.kubernetes.driver import Connection, KubernetesCluster
from workloads.runtime.base import Refused, Unreachable


def config(cluster: dict[str, Any] | None = None, **user: Any) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", **(cluster or {})}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (config(exec={"command": "/bin/sh", "args": ["-c", "id"]}), "exec is not allowed"),
        (config(tokenFile="/etc/passwd"), "tokenFile is not allowed"),
        (config(**{"client-key": "/etc/ssl/key"}), "client-key is not allowed"),
        (config({"certificate-authority": "/etc/passwd"}, token="t"), "certificate-authority is not allowed"),
        ("not: [yaml", "not a kubeconfig"),
        ("just text", "not a kubeconfig"),
        ("users: []", "not a kubeconfig"),
    ],
)
def test_what_a_kubeconfig_may_not_say_is_refused_with_the_key(text: str, said: str) -> None:
    with pytest.raises(Refused, match=said) as refused:
        KubernetesCluster("c", Connection(text))
    assert refused.value.code == "bad_kubeconfig"


def test_a_context_that_is_not_there_is_refused_when_it_is_used() -> None:
    text = config(token="t").replace("current-context: c", "current-context: elsewhere")
    with pytest.raises(Refused, match="elsewhere"):
        KubernetesCluster("c", Connection(text)).nodes()


def test_without_a_kubeconfig_the_service_account_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(Unreachable, match="service account"):
        KubernetesCluster("c", Connection()).nodes()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"volumes": "pvc"}, "unknown option volumes"),
        ({"volume": "hostPath"}, "volume must be one of pvc, emptyDir"),
        ({"run_as": "root"}, "run_as must be a whole number"),
    ],
)
def test_an_option_that_is_none_is_refused_by_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        KubernetesCluster("c", Connection(config(token="t"), options))


def test_a_connection_does_not_print_its_secret() -> None:
    assert "secret" not in repr(Connection(config(token="secret")))
