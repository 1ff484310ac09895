"""A request for a job, as a form or a program would submit it."""

from quotas.models import Pool
from workloads.models import Image
from workloads.requests.request import WorkloadRequest


def asked(pool: Pool, **changes: object) -> WorkloadRequest:
    image, _ = Image.objects.get_or_create(name="python:3", defaults={"title": "Python"})
    fields: dict[str, object] = {"kind": "job", "name": "train", "pool": pool, "image": image, "command": ("python",)}
    return WorkloadRequest(**(fields | changes))  # type: ignore[arg-type]
