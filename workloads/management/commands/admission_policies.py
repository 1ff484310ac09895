"""`manage.py admission_policies`: objects for a cluster, so that the portal admits workloads submitted there directly."""

from __future__ import annotations

from typing import Any

import yaml
from django.core.management.base import BaseCommand

from workloads.kubernetes.manifests import admission

HEAD = """\
# Made by `manage.py admission_policies`: what others submit in namespaces tied to a department waits for the portal.
# Needs Kubernetes 1.36, where MutatingAdmissionPolicy is stable. docs/kubectl.md says how it is used.
"""


def text() -> str:
    return HEAD + yaml.safe_dump_all(admission.objects(), sort_keys=False, width=120)


class Command(BaseCommand):
    help = "Writes the policies and rights by which work that others submit to a cluster is admitted, as YAML."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(text(), ending="")
