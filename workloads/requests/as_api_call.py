"""A request as JSON, YAML or curl for the REST API, to copy into a pipeline. Only the names of secrets are included."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

import yaml
from django.conf import settings
from django.urls import reverse

from quotas.models import ClusterKind
from workloads.clusters.run_spec import spec_of
from workloads.kubernetes import manifests
from workloads.models import Attempt
from workloads.requests.previews import HIDDEN
from workloads.requests.request import WorkloadRequest


def body_of(request: WorkloadRequest) -> dict[str, Any]:
    """The JSON body of POST …/workloads/, without defaults."""
    body: dict[str, Any] = {
        "kind": request.kind,
        "name": request.name,
        "image": request.image.name,
        "command": list(request.command),
        "pool": request.pool.slug,
    }
    body |= {"profile": request.profile} if request.profile else {"units_per_pod": request.units_per_pod}
    body |= {"cores_per_pod": request.cores_per_pod} if request.cores_per_pod else {}
    cores = request.cpu_milli / 1000
    body |= {"cpu": int(cores) if cores.is_integer() else cores, "memory_mib": request.memory_mib}
    optional = {
        "env": {**request.env, **{name: {"secret": f"${name}"} for name in request.secret_env}},
        "max_runtime": request.max_runtime,
        "max_wait": request.max_wait,
        "own_only": request.own_only,
        "priority": request.priority,
        "pods": request.pods if request.pods > 1 else 0,
        "setup": request.setup.as_json(),
        "preset": request.preset.slug if request.preset else "",
    }
    body |= {name: value for name, value in optional.items() if value}
    return body if request.preemptible else body | {"preemptible": False}


def as_json(body: dict[str, Any]) -> str:
    return json.dumps(body, indent=2, ensure_ascii=False)


def as_yaml(body: dict[str, Any]) -> str:
    return yaml.safe_dump(body, sort_keys=False, allow_unicode=True)


def as_curl(department: str, body: dict[str, Any]) -> str:
    """One shell command; the token comes from the environment, and the idempotency key makes a retry harmless."""
    address = reverse("api:department-workloads", args=[department])
    env = {name: {"secret": _mark(name)} if isinstance(v, dict) else v for name, v in body.get("env", {}).items()}
    data = shlex.quote(json.dumps(body | ({"env": env} if env else {}), ensure_ascii=False))
    for name, value in env.items():
        if isinstance(value, dict):  # closes the single quotes around the shell's own variable
            data = data.replace(f'"{_mark(name)}"', f'"\'"${name}"\'"')
    return (
        f"curl -fsS {shlex.quote(settings.BASE_URL + address)} \\\n"
        '  -H "Authorization: Bearer $GPUQ_TOKEN" \\\n'
        '  -H "Idempotency-Key: $(uuidgen)" \\\n'
        f"  --json {data}"
    )


def _mark(name: str) -> str:
    """A placeholder for a secret's value. Its private-use characters cannot be in a name, so no other text equals it."""
    return f"\ue000{name}\ue000"


def manifest_of(attempt: Attempt) -> str:
    """The objects of one attempt as YAML, without the values of its secrets and without its token. "" outside Kubernetes.

    `attempt` should have its workload (with pool, department, author and image) and cluster loaded.
    """
    if attempt.cluster.kind != ClusterKind.KUBERNETES:
        return ""
    spec = replace(spec_of(attempt), ready_token=HIDDEN)
    try:
        options = manifests.Options.from_json(attempt.cluster.options)
        return yaml.safe_dump_all(manifests.objects(spec, options), sort_keys=False, allow_unicode=True)
    except (ValueError, manifests.Unsupported) as error:
        return f"# {error}"
