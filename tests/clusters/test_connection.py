"""A kubeconfig is user input: it must neither run nor read anything on the portal's machine."""

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
    ("text", "problem"),
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
def test_forbidden_or_invalid_kubeconfig_is_refused_with_the_key(text: str, problem: str) -> None:
    with pytest.raises(Refused, match=problem) as error:
        KubernetesCluster("c", Connection(text))
    assert error.value.code == "bad_kubeconfig"


def test_missing_context_is_refused_on_first_use() -> None:
    text = config(token="t").replace("current-context: c", "current-context: elsewhere")
    with pytest.raises(Refused, match="elsewhere"):
        KubernetesCluster("c", Connection(text)).nodes()


def test_service_account_is_required_without_a_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(Unreachable, match="service account"):
        KubernetesCluster("c", Connection()).nodes()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"volumes": "pvc"}, "unknown option volumes"),
        ({"volume": "hostPath"}, "volume must be one of pvc, emptyDir"),
        ({"run_as": "root"}, "run_as must be a whole number"),
    ],
)
def test_invalid_option_is_refused_by_name(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(Refused, match=problem):
        KubernetesCluster("c", Connection(config(token="t"), options))


def test_repr_of_a_connection_hides_its_secret() -> None:
    assert "secret" not in repr(Connection(config(token="secret")))
