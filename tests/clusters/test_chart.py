"""deploy/helm: rendered by Helm, and the result accepted by a real API server."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clusters.network_policies import End, matches, may_reach, of_template
from tests.clusters.realcluster import CHART, ROOT, Admin, rendered, tool, unique
from tests.portal.infra.test_env_example import named

PROCESSES = {"web", "worker", "watcher", "beat", "migrate"}
BASE: dict[str, Any] = {"url": "https://gpu.example.org", "notebookUrl": "https://*.example-notebooks.org"}
BASE |= {"image": {"repository": "registry.example.org/portal"}, "keys": {"existingSecret": "keys"}}
OUTSIDE = {"database": {"secret": {"name": "postgres-app", "key": "uri"}}, "redis": {"url": "redis://redis:6379/0"}}
VARIANTS: dict[str, dict[str, Any]] = {
    "trial": BASE | {
        "url": "http://localhost:8000",
        "notebookUrl": "",
        "database": {"trial": True, "storage": {"className": "local"}},
        "redis": {"trial": True},
    },
    "ingress, and references to existing objects": BASE | OUTSIDE | {
        "image": {"repository": "r/portal", "digest": "sha256:" + "0" * 64, "pullSecrets": ["registry", "mirror"]},
        "redis": {"secret": {"name": "redis"}},
        "settings": {"TIME_ZONE": "Asia/Shanghai", "FAIR_SHARING": True, "PLAN_DAYS": 30, "HTTPS_PROXY": "http://p:3128"},
        "settingsFrom": ["mail", "sign-in"],
        "files": "providers",
        "trustedCertificates": "company",
        "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "portal-tls", "notebookTlsSecret": "wildcard-tls"},
        "service": {"type": "NodePort", "port": 8080, "annotations": {"a": "b"}},
        "monitoring": {
            "serviceMonitor": True,
            "rules": True,
            "labels": {"release": "prometheus"},
            "runbooks": "https://git.example.org/portal/docs/runbooks.md",
            "dashboards": True,
        },
        "rbac": {"nodeChanges": True},
        "admission": {"enabled": True},
        "backup": {"enabled": True, "keep": 3, "storage": {"size": "5Gi", "className": "fast"}},
        "serviceAccount": {"annotations": {"a": "b"}},
        "networkPolicy": {
            "webFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}],
            "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
        },
        "podAnnotations": {"a": "b"},
        "podLabels": {"a": "b"},
        "nodeSelector": {"role": "system"},
        "tolerations": [{"key": "role", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
        "extraObjects": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-more"}, "data": {"a": "b"}}
        ],
    },
    "existing gateway": BASE | OUTSIDE | {
        "gateway": {"enabled": True, "name": "public", "namespace": "infra", "sectionName": "https"},
    },
    "own gateway": BASE | OUTSIDE | {
        "gateway": {"enabled": True, "className": "cilium", "tlsSecret": "a", "notebookTlsSecret": "b"},
    },
    "minimal": BASE | OUTSIDE | {
        "networkPolicy": {"enabled": False},
        "rbac": {"create": False},
        "disruptionBudgets": False,
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
        "web": {"replicas": 1},
    },
    "access": {"mode": "access", "rbac": {"nodeChanges": True}},
    "access, with external work": {"mode": "access", "admission": {"enabled": True}},
}  # fmt: skip
variants = pytest.mark.parametrize("variant", VARIANTS)


def helm(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(each) for each in (tool("helm"), *arguments)], capture_output=True, text=True)


@pytest.fixture
def values(variant: str, tmp_path: Path) -> Path:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(VARIANTS[variant]))
    return file


def pods(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Component → its pod's template."""
    specs = [document.get("spec", {}) for document in documents]
    specs = [spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec for spec in specs]
    templates = [spec["template"] for spec in specs if "template" in spec]
    return {each["metadata"]["labels"]["app.kubernetes.io/component"]: each for each in templates}


def test_chart_version_is_the_portals_version() -> None:
    newest = next(line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## [0"))
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == newest.split("[")[1].split("]")[0]


@variants
def test_chart_passes_helm_lint(values: Path) -> None:
    linted = helm("lint", "--strict", CHART, "--values", values)
    assert linted.returncode == 0, linted.stdout
    assert helm("lint", "--strict", CHART).returncode == 0


def components_of(documents: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """Component → its object of this kind."""
    each = [document for document in documents if document["kind"] == kind]
    return {document["metadata"]["labels"]["app.kubernetes.io/component"]: document for document in each}


HOSTS = {"gpu.example.org", "*.example-notebooks.org"}


@pytest.mark.parametrize("variant", ["ingress, and references to existing objects"])
def test_ingress_serves_the_portal_and_all_notebooks(values: Path) -> None:
    documents = rendered("portal", "--values", str(values))
    (ingress,) = (document for document in documents if document["kind"] == "Ingress")
    assert {rule["host"] for rule in ingress["spec"]["rules"]} == HOSTS
    assert {host for tls in ingress["spec"]["tls"] for host in tls["hosts"]} == HOSTS
    assert set(components_of(documents, "PodDisruptionBudget")) == {"web", "worker", "watcher"}
    assert [document["spec"]["endpoints"][0]["honorLabels"] for document in documents
            if document["kind"] == "ServiceMonitor"] == [True]  # fmt: skip


@pytest.mark.parametrize("variant", ["existing gateway", "own gateway"])
def test_gateway_serves_the_portal_and_all_notebooks(variant: str, values: Path) -> None:
    documents = rendered("portal", "--values", str(values))
    routes = [document for document in documents if document["kind"] == "HTTPRoute"]
    assert {host for route in routes for host in route["spec"]["hostnames"]} == HOSTS
    gateways = [document for document in documents if document["kind"] == "Gateway"]
    assert len(gateways) == (variant == "own gateway")


@pytest.mark.parametrize("variant", ["minimal"])
def test_disruption_budgets_can_be_turned_off(values: Path) -> None:
    assert components_of(rendered("portal", "--values", str(values)), "PodDisruptionBudget") == {}


WRONG = {
    "url=gpu.example.org": "at '/url'",
    "url=https://gpu.example.org/portal": "at '/url'",
    "notebookUrl=https://notebooks.example.org": "at '/notebookUrl'",
    "web.replicas=two": "at '/web/replicas'",
    "ingres.enabled=true": "'ingres'",
    "image.digest=latest": "at '/image/digest'",
    "redis.url=localhost": "at '/redis/url'",
    "keys.existingSecret=My_Keys": "at '/keys/existingSecret'",
    "settings.TIME-ZONE=UTC": "at '/settings'",
    "settings.SECRET_KEY=x": "settings.SECRET_KEY is not for here",
    "url=": "url is missing",
    "notebookUrl=": "notebookUrl is missing",
    "image.repository=": "image.repository is missing",
    "database.secret.name=,keys.existingSecret=": "database is missing",
    "redis.url=": "redis is missing",
    "gateway.enabled=true": "gateway.name is missing",
    "keys.existingSecret=": "keys.existingSecret is missing",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_invalid_value_is_refused_and_named(wrong: str, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(BASE | OUTSIDE))
    result = helm("template", "portal", CHART, "--values", tmp_path / "values.yaml", "--set", wrong)
    assert result.returncode != 0
    assert WRONG[wrong] in result.stderr


def test_chart_sets_only_variables_that_the_portal_reads(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(BASE | OUTSIDE))
    documents = rendered("portal", "--values", str(tmp_path / "values.yaml"))
    [settings] = [document["data"] for document in documents if document["kind"] == "ConfigMap"]
    assert set(settings) <= set(named())


def test_dashboards_are_rendered_unchanged_and_alerts_link_to_runbooks(tmp_path: Path) -> None:
    variant = VARIANTS["ingress, and references to existing objects"]
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(variant))
    documents = rendered("portal", "--values", str(tmp_path / "values.yaml"))
    boards = [each for each in documents if "grafana_dashboard" in each["metadata"].get("labels", {})]
    files = {path.name: json.loads(path.read_text()) for path in (CHART / "dashboards").glob("*.json")}
    rendered_boards = {name: json.loads(text) for each in boards for name, text in each["data"].items()}
    assert rendered_boards == {f"gpu-quota-portal-{name}": board for name, board in files.items()}
    [rules] = [each["spec"]["groups"][0]["rules"] for each in documents if each["kind"] == "PrometheusRule"]
    for rule in rules:
        base = "https://git.example.org/portal/docs/runbooks.md"
        assert rule["annotations"]["runbook_url"] == f"{base}#{rule['alert'].lower()}"


@pytest.mark.parametrize("variant", ["access, with external work"])
def test_admission_policies_equal_the_portals_and_are_bound_to_the_chart_account(values: Path) -> None:
    """The policies are as `manage.py admission_policies` writes them; only the account is that of the release."""
    written = list(yaml.safe_load_all((CHART / "admission.yaml").read_text()))
    documents = rendered("portal", "--namespace", "infra", "--values", str(values))
    admission_objects = [
        each for each in documents if each["metadata"]["labels"]["app.kubernetes.io/component"] == "admission"
    ]

    def by_name(documents: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
        own = {"ClusterRole", "ClusterRoleBinding"}
        return {(each["kind"], "" if each["kind"] in own else each["metadata"]["name"]): each for each in documents}

    of_chart, of_portal = by_name(admission_objects), by_name(written)
    assert set(of_chart) == set(of_portal)
    for key, document in of_chart.items():
        assert [document.get(part) for part in ("spec", "rules")] == [
            of_portal[key].get(part) for part in ("spec", "rules")
        ]
    role, binding = of_chart["ClusterRole", ""], of_chart["ClusterRoleBinding", ""]
    assert binding["roleRef"]["name"] == role["metadata"]["name"] == "portal-gpu-quota-portal-infra-admission"
    account = {"kind": "ServiceAccount", "name": "portal-gpu-quota-portal", "namespace": "infra"}
    assert binding["subjects"] == [account]
    assert account["name"] in [each["metadata"]["name"] for each in documents if each["kind"] == "ServiceAccount"]


@variants
def test_every_selector_matches_pods(variant: str, values: Path) -> None:
    if variant == "trial":
        pytest.skip("its keys need a cluster; tested below")
    check_selectors(rendered("portal", "--values", str(values)))


def check_selectors(documents: list[dict[str, Any]]) -> None:
    labels = [template["metadata"]["labels"] for template in pods(documents).values()]
    for document in documents:
        spec = document.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector") or {}
        if wanted := selector.get("matchLabels", selector):
            assert any(wanted.items() <= each.items() for each in labels), document["metadata"]["name"]


@pytest.fixture(scope="module")
def namespace(admin: Admin) -> Iterator[str]:
    """A namespace that enforces the Pod Security Standard `restricted`, with the account that pods require."""
    own = unique("chart")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": own, "labels": labels}})
    admin.call("POST", "/api/v1/namespaces", {"metadata": {"name": "gpu-operator"}})
    account = {"metadata": owned(own) | {"name": "portal-gpu-quota-portal"}}
    assert admin.call("POST", f"/api/v1/namespaces/{own}/serviceaccounts", account)["kind"] == "ServiceAccount"
    admin.serve("Gateway", "HTTPRoute", "ServiceMonitor", "PrometheusRule")
    yield own
    admin.call("DELETE", f"/api/v1/namespaces/{own}")


def owned(namespace: str) -> dict[str, Any]:
    """The metadata by which Helm recognises an object as part of its release."""
    release = {"meta.helm.sh/release-name": "portal", "meta.helm.sh/release-namespace": namespace}
    return {"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": release}


def from_the_cluster(admin: Admin, namespace: str, values: Path, *more: str) -> list[dict[str, Any]]:
    """Renders with the cluster's state. Other tests install the admission policies, so ownership is taken from them."""
    config = f"--kubeconfig={admin.state / 'admin.kubeconfig'}"
    where = ("--namespace", namespace, "--values", str(values), "--dry-run=server", "--take-ownership", config)
    return rendered("portal", *where, *more)


@pytest.mark.cluster
@variants
def test_api_server_accepts_every_object(admin: Admin, namespace: str, variant: str, values: Path) -> None:
    documents = from_the_cluster(admin, namespace, values)
    components = {"ServiceAccount"} if variant.startswith("access") else {"Deployment", "Job", "Service", "ConfigMap"}
    assert components <= {document["kind"] for document in documents}
    for document in documents:
        kind, home = document["kind"], document["metadata"].setdefault("namespace", namespace)
        if kind.startswith("ClusterRole") or "AdmissionPolicy" in kind:
            del document["metadata"]["namespace"]
        if kind == "ServiceAccount":
            continue  # exists already
        assert home in (namespace, "gpu-operator")
        admin.apply(document, options="dryRun=All&fieldValidation=Strict")


@pytest.mark.cluster
@variants
def test_pods_obey_the_restricted_pod_security_standard(
    admin: Admin, namespace: str, variant: str, values: Path
) -> None:
    documents = from_the_cluster(admin, namespace, values)
    check_selectors(documents)
    templates = pods(documents)
    more = {"database", "redis"} if variant == "trial" else set()
    if "backup" in VARIANTS[variant]:
        more = {"backup"}
    assert set(templates) == (set() if variant.startswith("access") else PROCESSES | more)
    for name, template in templates.items():
        if name == "database":  # its controller adds the volume of its claim
            template["spec"]["volumes"].append({"name": "data", "emptyDir": {}})
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": unique("pod")}, "spec": template["spec"]}
        response = admin.call("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict", pod)
        assert response["kind"] == "Pod", (name, response["message"])
        for container in (*template["spec"]["containers"], *template["spec"].get("initContainers", [])):
            assert container["securityContext"]["readOnlyRootFilesystem"]
        uses_api = name in {"web", "worker", "watcher"}
        assert template["spec"]["automountServiceAccountToken"] is uses_api


KEYS = {"SECRET_KEY": "a", "ENCRYPTION_KEYS": "b", "METRICS_TOKEN": "c", "POSTGRES_PASSWORD": "d", "DATABASE_URL": "e"}


@pytest.mark.cluster
@pytest.mark.parametrize("variant", ["trial"])
@pytest.mark.parametrize(
    ("name", "left_out", "more", "sentence"),
    [
        ("portal-gpu-quota-portal-keys", (), ("--set", "keys.existingSecret="), ""),
        ("portal-gpu-quota-portal-keys", ("METRICS_TOKEN", "DATABASE_URL"), ("--set", "keys.existingSecret="), ""),
        ("portal-gpu-quota-portal-keys", ("ENCRYPTION_KEYS",), ("--set", "keys.existingSecret="), "restore it from its backup"),
        ("other", (), ("--set", "keys.existingSecret="), "restore it from its backup, or name another in keys.existingSecret"),
        ("keys", (), (), ""),
        ("keys", ("POSTGRES_PASSWORD",), (), "the Secret keys (keys.existingSecret) has no POSTGRES_PASSWORD"),
        ("keys", ("DATABASE_URL",), (), "the Secret keys (keys.existingSecret) has no DATABASE_URL"),
    ],
)  # fmt: skip
def test_upgrade_requires_the_existing_keys(
    admin: Admin, namespace: str, values: Path, name: str, left_out: tuple[str, ...], more: tuple[str, ...], sentence: str
) -> None:  # fmt: skip
    data = {key: value for key, value in KEYS.items() if key not in left_out}
    path = f"/api/v1/namespaces/{namespace}/secrets"
    where = ("--namespace", namespace, "--values", values, f"--kubeconfig={admin.state / 'admin.kubeconfig'}")
    kept = {"metadata": owned(namespace) | {"name": name}, "stringData": data}
    assert admin.call("POST", path, kept)["kind"] == "Secret"
    try:
        result = helm("template", "portal", CHART, *where, "--dry-run=server", "--is-upgrade", *more)
    finally:
        admin.call("DELETE", f"{path}/{name}")
    assert (result.returncode == 0) is (sentence == ""), result.stderr
    assert sentence in result.stderr


@pytest.mark.cluster
@pytest.mark.parametrize("variant", ["trial"])
def test_keys_are_generated_only_once(admin: Admin, namespace: str, values: Path) -> None:
    def keys() -> dict[str, str]:
        found = from_the_cluster(
            admin, namespace, values, "--set", "keys.existingSecret=", "--show-only=templates/keys.yaml"
        )
        return dict(found[0]["stringData"])

    first = keys()
    assert first != keys(), "they are not stored yet"
    assert len(base64.urlsafe_b64decode(first["ENCRYPTION_KEYS"])) == 32
    kept = {
        "metadata": owned(namespace) | {"name": "portal-gpu-quota-portal-keys"},
        "stringData": first | {"METRICS_TOKEN": ""},
    }
    path = f"/api/v1/namespaces/{namespace}/secrets"
    assert admin.call("POST", path, kept)["kind"] == "Secret"
    again = keys()
    admin.call("DELETE", f"{path}/{kept['metadata']['name']}")
    assert again.pop("METRICS_TOKEN")
    assert again == {name: value for name, value in first.items() if name != "METRICS_TOKEN"}


CONTROLLER = End({"app": "ingress"}, namespace={"kubernetes.io/metadata.name": "ingress-nginx"})
STRANGERS = {
    "a pod in the namespace": End({"app": "other"}),
    "a pod in another namespace": End({"app": "x"}, namespace={"kubernetes.io/metadata.name": "x"}),
    "the controller": CONTROLLER, "an address": End(address="192.0.2.7"),
}  # fmt: skip


def served_ports(documents: list[dict[str, Any]], ends: dict[str, End], host: str) -> set[tuple[str, int]]:
    """Component and port of the pods that a Service of this release leads to; nothing for other hosts."""
    [service] = [each for each in documents if each["kind"] == "Service" and each["metadata"]["name"] == host] or [{}]
    return {
        (name, end.ports.get(port["targetPort"], port["targetPort"]))
        for port in service.get("spec", {}).get("ports", [])
        for name, end in ends.items()
        if matches({"matchLabels": service["spec"]["selector"]}, end.labels)
    }


@pytest.mark.cluster
@pytest.mark.parametrize("variant", [name for name in VARIANTS if not name.startswith("access")])
def test_network_policies_allow_exactly_the_required_connections(
    admin: Admin, namespace: str, variant: str, values: Path
) -> None:
    """The required connections are taken from the Services and the addresses in the settings, not from the policies."""
    check_connections(from_the_cluster(admin, namespace, values), variant)


WITH_POLICIES = [name for name in VARIANTS if name == "trial" or name.startswith("ingress")]


@pytest.mark.parametrize("variant", WITH_POLICIES)
def test_missing_or_too_wide_network_policy_is_detected(variant: str, values: Path) -> None:
    """The negative control of the test above: the same manifests without one policy, or with one that allows everything."""
    documents = rendered("portal", "--namespace", "here", "--values", str(values))
    check_connections(documents, variant)
    positions = [index for index, each in enumerate(documents) if each["kind"] == "NetworkPolicy"]
    assert len(positions) == (5 if variant == "trial" else 3)
    undetected = []
    for index in positions:
        policy = documents[index]
        wider = [
            {**policy, "spec": {**policy["spec"], rules: [{}]}}
            for rules in ("ingress", "egress")
            if rules.title() in policy["spec"]["policyTypes"] and policy["spec"].get(rules) != [{}]
        ]
        for instead in ([], *([each] for each in wider)):
            try:
                check_connections([*documents[:index], *instead, *documents[index + 1 :]], variant)
            except AssertionError:
                continue
            undetected.append((policy["metadata"]["name"], instead))
    assert undetected == []


def check_connections(documents: list[dict[str, Any]], variant: str) -> None:
    policies = [each for each in documents if each["kind"] == "NetworkPolicy"]
    if not VARIANTS[variant].get("networkPolicy", {}).get("enabled", True):
        assert policies == []
        return
    ends = {name: of_template(template) for name, template in pods(documents).items()}
    own = {name for name in ends if name in {"database", "redis"}}
    needed = {(source, *each) for host in ("database", "redis") for each in served_ports(
        documents, ends, f"portal-gpu-quota-portal-{host}") for source in set(ends) - own}  # fmt: skip
    assert len({target for _, target, _ in needed}) == len(own)
    [(web, http)] = served_ports(documents, ends, "portal-gpu-quota-portal-web")
    front = VARIANTS[variant].get("networkPolicy", {}).get("webFrom")
    callers = {"the controller"} if front else {*ends, *STRANGERS}
    everybody = ends | STRANGERS
    for target, end in ends.items():
        for port in {1, http, 5432, 6379, *end.ports.values()}:
            for source, other in everybody.items():
                wanted = (source, target, port) in needed or (
                    (target, port) == (web, http) and source in callers - own and source != target
                )
                if source == target == web and not front:
                    continue  # another replica of itself: an address like any other
                assert may_reach(policies, other, end, port) is wanted, (source, target, port)
    listed = VARIANTS[variant].get("networkPolicy", {}).get("egress")
    for name, end in ends.items():
        free = name not in own
        assert may_reach(policies, end, End(address="192.0.2.7"), 443) is (free and not listed), name
        assert may_reach(policies, end, End(address="10.1.2.3"), 6443) is free, name
        assert may_reach(policies, end, CONTROLLER, 53, "UDP") is free, (name, "names")
