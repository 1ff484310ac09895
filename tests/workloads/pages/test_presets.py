"""The operator's form for presets."""

from __future__ import annotations

import pytest
from django.test import Client

from quotas.models import Pool
from tests import builders as make
from workloads.models import Image, Kind, Preset
from workloads.requests.kinds import OWN_FIELDS
from workloads.requests.setup_fields import SetupFields

pytestmark = pytest.mark.django_db
NEW = "/operator/presets/new/"
GIVEN = {
    "template": "mpi", "parameter_servers": "1", "same_domain": "on", "rdma": "2", "max_restarts": "3", "shm_mib": "1 GiB",
    "port": "8080", "ready_path": "/healthz", "department_volume": "on", "user_volume": "on", "ipc_lock": "on", "pods": "4",
}  # fmt: skip
STORED = {
    "template": "mpi", "parameter_servers": 1, "same_domain": True, "rdma": 2, "max_restarts": 3, "shm_mib": 1024, "port": 8080,
    "ready_path": "/healthz", "department_volume": True, "user_volume": True, "ipc_lock": True,
}  # fmt: skip


@pytest.fixture
def pool() -> Pool:
    return make.pool("a100", cards=4)


@pytest.fixture
def oscar(pool: Pool) -> Client:
    client = Client()
    client.force_login(make.user("oscar", is_operator=True))
    return client


def preset_form(pool: Pool, **fields: str) -> dict[str, str]:
    image, _new = Image.objects.get_or_create(name="python:3", title="Python")
    return {
        "slug": "small", "title": "Small", "kind": "job", "pool": str(pool.pk), "units_per_pod": "1", "image": str(image.pk),
        "command": "python", "cpu_milli": "1", "memory_mib": "8", "order": "0", "active": "on", **fields,
    }  # fmt: skip


def test_given_values_cover_every_setup_field() -> None:
    assert {*GIVEN} == {*SetupFields.base_fields}


@pytest.mark.parametrize("kind", [Kind.JOB, Kind.NOTEBOOK, Kind.DISTRIBUTED, Kind.SERVICE])
def test_options_of_each_kind_are_stored_and_shown_again(oscar: Client, pool: Pool, kind: Kind) -> None:
    assert oscar.post(NEW, preset_form(pool, kind=kind.value, **GIVEN)).status_code == 302
    preset = Preset.objects.get()
    assert preset.setup == {name: value for name, value in STORED.items() if kind in OWN_FIELDS.get(name, Kind.values)}
    assert preset.pods == (4 if kind is Kind.DISTRIBUTED else 1)
    address = f"/operator/presets/{preset.pk}/"
    form = oscar.get(address).context["form"]
    values = {name: form[name].value() for name in form.fields}
    sent = {name: value for name, value in values.items() if value is not None and value is not False}
    response = oscar.post(address, sent)
    assert response.status_code == 302, response.context["form"].errors
    assert Preset.objects.get().setup == preset.setup


def test_maximum_runtime_is_entered_as_a_duration_with_unit(oscar: Client, pool: Pool) -> None:
    assert oscar.post(NEW, preset_form(pool, max_runtime="1d 12h")).status_code == 302
    preset = Preset.objects.get()
    assert preset.max_runtime == 36 * 3600
    assert 'value="1d 12h"' in oscar.get(f"/operator/presets/{preset.pk}/").content.decode()
    refused = oscar.post(NEW, preset_form(pool, slug="other", max_runtime="3600"))
    assert (refused.status_code, "with its unit" in refused.content.decode()) == (422, True)
