"""The researcher's pages on a real database; tests/e2e/test_researcher.py runs workloads on the embedded cluster."""

from __future__ import annotations

import datetime as dt
import html
import json
import re
import shlex
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from portal.models import AuditEntry, Department, Role, User
from quotas.models import Cluster, ClusterKind, Node, Pool
from tests import builders as make
from workloads.clusters.run_spec import tokens_of
from workloads.models import Attempt, IdleSpell, Image, Kind, Preset, Workload
from workloads.pages import home

pytestmark = pytest.mark.django_db(transaction=True)


class World:
    """vision has 4 of 8 cards guaranteed and can borrow 2 more; nlp has the other 4."""

    def __init__(self) -> None:
        self.pool = make.pool("a100", cards=8, notice=600, grace=120)
        self.vision, self.nlp = make.department("vision"), make.department("nlp")
        make.quota(self.vision, self.pool, 4, borrow_limit=2)
        make.quota(self.nlp, self.pool, 4)
        self.alice = make.member(self.vision, username="alice")
        self.carol = make.member(self.vision, username="carol")
        self.owner = make.member(self.vision, Role.OWNER, username="olivia")
        self.viewer = make.member(self.vision, Role.VIEWER, username="vera")
        self.stranger = make.member(self.nlp, username="bob")
        self.image = Image.objects.create(name="python:3.11", title="Python 3.11", interpreter="python")
        self.preset = Preset.objects.create(
            slug="two-cards", title="Two cards", kind=Kind.JOB, pool=self.pool, units_per_pod=2, image=self.image,
            command=["python", "train.py", "--name", "a b"], max_runtime=7200,
        )  # fmt: skip

    def form(self, **changes: Any) -> dict[str, Any]:
        return {
            "kind": "job", "name": "sweep", "pool": self.pool.slug, "units_per_pod": "2", "image": self.image.name,
            "command": "python train.py", "cpu": "2", "memory_mib": "8 GiB", "max_runtime": "2h",
        } | changes  # fmt: skip


@pytest.fixture
def world() -> World:
    return World()


def as_(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def new(department: Department) -> str:
    return reverse("workloads:new", args=[department.slug])


def verdict(client: Client, department: Department, form: dict[str, Any]) -> str:
    response = client.post(reverse("workloads:verdict", args=[department.slug]), form, headers={"HX-Request": "true"})
    assert response.status_code == 200
    return str(response.content.decode())


def submit(client: Client, world: World, **changes: Any) -> Workload:
    response = client.post(new(world.vision), world.form(**changes))
    assert response.status_code == 302, re.findall(r"invalid-feedback.*?</div>", response.content.decode(), re.S)
    return Workload.objects.order_by("-pk")[0]


# Before submitting ---------------------------------------------------------------------------------------------------


def test_preset_fills_the_form(world: World) -> None:
    page = as_(world.alice).get(new(world.vision) + "?preset=two-cards").content.decode()
    assert 'value="2"' in page
    assert "python train.py --name &#x27;a b&#x27;" in page
    assert 'value="2h"' in page


def test_verdict_panel_shows_a_start_from_own_quota_with_numbers(world: World) -> None:
    text = verdict(as_(world.alice), world.vision, world.form())
    assert 'data-verdict="starts_own"' in text
    assert "Starts now, from your own quota." in text
    assert "4 cards guaranteed" in text


def test_verdict_panel_shows_what_is_borrowed_and_who_can_recall_it(world: World) -> None:
    text = verdict(as_(world.alice), world.vision, world.form(units_per_pod="6"))
    assert 'data-verdict="starts_borrowing"' in text
    assert "Starts now, 2 of 6 cards borrowed from Nlp." in text
    assert "10 min notice and 2 min grace" in text


def test_verdict_panel_offers_no_loan_with_own_quota_only(world: World) -> None:
    text = verdict(as_(world.alice), world.vision, world.form(units_per_pod="6", own_only="on"))
    assert 'data-verdict="starts_borrowing"' not in text


def test_verdict_panel_names_the_largest_possible_request(world: World) -> None:
    text = verdict(as_(world.alice), world.vision, world.form(units_per_pod="7"))
    assert 'data-verdict="cannot"' in text
    assert "The largest request that can run is 6 cards." in text
    assert "Request less" not in text  # a button offers it
    assert text.index("6 cards here") < text.index("Or ask the quota owner for more quota.")


def test_verdict_panel_says_when_lent_cards_return(world: World) -> None:
    make.holding(
        world.nlp,
        world.pool,
        own=4,
        borrowed={world.vision: 4},
        placement=[{"pod": 0, "node": "a100-n1", "cards": [0, 1, 2, 3, 4, 5, 6, 7]}],
        notice=600,
        grace=120,
    )
    text = verdict(as_(world.alice), world.vision, world.form())
    assert 'data-verdict="starts_by"' in text
    assert "Nlp has returned" in text


def test_verdict_panel_lists_invalid_fields(world: World) -> None:
    text = verdict(as_(world.alice), world.vision, world.form(name="", units_per_pod="many", max_runtime="long"))
    assert "“many” is not a valid amount" in text
    assert "“long” is not a valid duration" in text


def test_verdict_panel_works_without_name_and_command_but_offers_no_curl_copy(world: World) -> None:
    text = verdict(as_(world.alice), world.vision, world.form(name="", command=""))
    assert 'data-verdict="starts_own"' in text
    assert "Required fields: Name, Command." in text
    assert "curl" not in text


def test_curl_copy_makes_the_same_request_without_secret_values(world: World) -> None:
    text = verdict(as_(world.alice), world.vision, world.form(env="A=1", secret_env="KEY=hunter2"))
    assert "hunter2" not in text
    curl = re.search(r'<pre id="copy-curl" hidden>(.*?)</pre>', text, re.S)
    assert curl
    words = shlex.split(html.unescape(curl[1]))
    body = json.loads(words[words.index("--json") + 1])
    assert body["pool"] == "a100"
    assert body["units_per_pod"] == 2
    assert body["max_runtime"] == 7200
    assert set(body["env"]) == {"A", "KEY"}


def test_verdict_panel_warns_of_nodes_with_a_driver_too_old_for_the_image(world: World) -> None:
    Node.objects.update(labels={"nvidia.com/cuda.driver-version.major": "470"})
    Image.objects.update(min_driver=525)
    text = verdict(as_(world.alice), world.vision, world.form())
    assert "Python 3.11 needs driver 525 or newer" in text
    assert "a100-n1 (470)" in text
    Node.objects.update(labels={"nvidia.com/cuda.driver-version.major": "580"})
    assert "needs driver" not in verdict(as_(world.alice), world.vision, world.form())


# Submitting ----------------------------------------------------------------------------------------------------------


def test_submitted_form_creates_a_queued_and_audited_workload(world: World) -> None:
    workload = submit(as_(world.alice), world, env="A=1\nB=x=y", secret_env="KEY=hunter2")
    assert (workload.state, workload.units, workload.memory_mib, workload.max_runtime) == ("queued", 2, 8192, 7200)
    assert workload.env == {"A": "1", "B": "x=y"}
    assert workload.command == ["python", "train.py"]
    assert "hunter2" not in workload.secret_env
    assert AuditEntry.objects.filter(action="workload.submitted", target=workload.public_id).exists()


def test_refused_form_keeps_its_values_and_names_the_faulty_fields(world: World) -> None:
    response = as_(world.alice).post(new(world.vision), world.form(name="keep me", units_per_pod="7", env="bad line"))
    page = response.content.decode()
    assert response.status_code == 422
    assert 'value="keep me"' in page
    assert "Line 1 has no “=”" in page
    assert not Workload.objects.exists()
    page = as_(world.alice).post(new(world.vision), world.form(units_per_pod="7")).content.decode()
    assert "The largest request that can run is 6 cards" in page


@pytest.mark.parametrize(("machine", "field"), [({"cpu": "40"}, "cpu"), ({"memory_mib": "80 GiB"}, "memory_mib")])
def test_cpu_or_memory_that_no_node_has_is_refused_with_the_closest_node(
    world: World, machine: dict[str, str], field: str
) -> None:
    Node.objects.update(cpu_milli=32_000, memory_mib=65_536)
    response = as_(world.alice).post(new(world.vision), world.form(**machine))
    assert response.status_code == 422
    [error] = response.context["form"].errors[field]
    assert error.startswith("There are enough cards, but no node has ")
    assert error.endswith("the closest is a100-n1 with 32 and 64 GiB.")
    assert "There are enough cards" in verdict(as_(world.alice), world.vision, world.form(**machine))
    assert not Workload.objects.exists()


def test_image_of_another_kind_is_not_preselected_and_is_refused_with_alternatives(
    world: World,
) -> None:
    Image.objects.create(name="a-notebook:1", title="A notebook", kinds=[Kind.NOTEBOOK])
    page = as_(world.alice).get(new(world.vision)).content.decode()
    assert re.search(r'<option value="python:3.11"[^>]* selected', page)
    assert re.search(r'<option value="a-notebook:1"[^>]*data-kinds="notebook"', page)
    response = as_(world.alice).post(new(world.vision), world.form(image="a-notebook:1"))
    assert response.status_code == 422
    assert "The image a-notebook:1 is not available for this type. Available: python:3.11." in response.content.decode()


def test_refused_form_asks_to_choose_its_files_again(world: World) -> None:
    form = world.form(units_per_pod="7", files=[SimpleUploadedFile("data.txt", b"1")])
    response = as_(world.alice).post(new(world.vision), form)
    assert response.status_code == 422
    assert "Choose data.txt again" in response.content.decode()


def test_variables_that_would_break_isolation_are_refused(world: World) -> None:
    response = as_(world.alice).post(new(world.vision), world.form(env="CUDA_VISIBLE_DEVICES=all"))
    assert response.status_code == 422
    assert "CUDA_VISIBLE_DEVICES is reserved: it could change which cards" in response.content.decode()


def test_viewer_cannot_submit_and_other_departments_get_not_found(world: World) -> None:
    assert as_(world.viewer).get(new(world.vision)).status_code == 403
    assert as_(world.stranger).get(new(world.vision)).status_code == 404
    assert as_(world.stranger).post(new(world.vision), world.form()).status_code == 404


def test_clone_copies_everything_but_secret_values(world: World) -> None:
    origin = submit(as_(world.alice), world, env="A=1", secret_env="KEY=hunter2")
    page = as_(world.alice).get(new(world.vision) + f"?from={origin.public_id}").content.decode()
    assert "A=1" in page
    assert "hunter2" not in page
    assert "Secret values are not copied" in page


# The list ------------------------------------------------------------------------------------------------------------


def test_list_is_filtered_by_its_address_and_counts_each_choice(world: World) -> None:
    client = as_(world.alice)
    for name in ("alpha", "beta"):
        submit(client, world, name=name)
    submit(as_(world.carol), world, name="gamma")
    everything = reverse("workloads:list", args=["vision"])
    page = client.get(everything + "?author=carol").content.decode()
    assert "gamma" in page
    assert "alpha" not in page
    context = client.get(everything + "?author=carol").context
    by = next(facet for facet in context["facets"] if facet.name == "author")
    assert {(choice.value, choice.count) for choice in by.choices} == {("alice", 2), ("carol", 1)}
    assert "Nothing matches" in client.get(everything + "?state=failed").content.decode()


def test_refresh_of_the_list_returns_only_its_rows(world: World) -> None:
    submit(as_(world.alice), world, name="alpha")
    response = as_(world.alice).get(reverse("workloads:list", args=["vision"]), headers={"HX-Request": "true"})
    page = response.content.decode()
    assert "alpha" in page
    assert "<html" not in page
    assert "HX-Request" in response.headers["Vary"]


def test_workload_names_are_hidden_from_other_departments(world: World) -> None:
    workload = submit(as_(world.alice), world, name="secret-plan")
    bob = as_(world.stranger)
    for path in (
        reverse("workloads:list", args=["vision"]),
        reverse("workloads:detail", args=["vision", workload.public_id]),
        reverse("workloads:detail", args=["nlp", workload.public_id]),
        reverse("workloads:log", args=["vision", workload.public_id]),
        reverse("workloads:download", args=["vision", workload.public_id]),
    ):
        assert bob.get(path).status_code == 404, path
    assert "secret-plan" not in bob.get(reverse("workloads:search") + "?q=secret").content.decode()
    assert "secret-plan" in as_(world.alice).get(reverse("workloads:search") + "?q=secret").content.decode()


def test_bulk_stop_stops_permitted_workloads_and_explains_the_others(world: World) -> None:
    own, other = submit(as_(world.alice), world), submit(as_(world.carol), world, name="hers")
    address = reverse("workloads:several", args=["vision"])
    response = as_(world.alice).post(address, {"workload": [own.public_id, other.public_id]}, follow=True)
    page = response.content.decode()
    assert Workload.objects.get(pk=own.pk).state == "cancelled"
    assert Workload.objects.get(pk=other.pk).state == "queued"
    assert "hers: This requires the role owner." in page
    as_(world.owner).post(address, {"workload": [other.public_id]})
    assert Workload.objects.get(pk=other.pk).state == "cancelled"


def test_number_of_queries_of_the_list_does_not_grow_with_its_rows(
    world: World, django_assert_max_num_queries: Any
) -> None:
    client = as_(world.alice)
    submit(client, world)
    client.get(reverse("workloads:list", args=["vision"]))
    for number in range(5):
        submit(client, world, name=f"job-{number}")
    with django_assert_max_num_queries(24):
        client.get(reverse("workloads:list", args=["vision"]))


# One workload --------------------------------------------------------------------------------------------------------


def test_page_of_a_queued_workload_shows_its_status_and_a_stop_dialog_with_a_warning(world: World) -> None:
    workload = submit(as_(world.alice), world)
    page = as_(world.alice).get(reverse("workloads:detail", args=["vision", workload.public_id])).content.decode()
    assert "Scheduling…" in page
    assert "unsaved work is lost" in page


def test_viewer_sees_the_workload_without_buttons(world: World) -> None:
    workload = submit(as_(world.alice), world)
    page = as_(world.viewer).get(reverse("workloads:detail", args=["vision", workload.public_id])).content.decode()
    assert workload.name in page
    assert 'command="show-modal" commandfor="stop"' not in page
    assert as_(world.viewer).post(reverse("workloads:stop", args=["vision", workload.public_id])).status_code == 403


def test_refused_action_shows_the_page_with_the_reason(world: World) -> None:
    workload = submit(as_(world.alice), world)
    client = as_(world.alice)
    response = client.post(reverse("workloads:leave", args=["vision", workload.public_id]), follow=True)
    assert "It is not being recalled." in response.content.decode()
    response = client.post(
        reverse("workloads:extend", args=["vision", workload.public_id]), {"by": "900d"}, follow=True
    )
    assert "extend by up to" in response.content.decode()
    response = client.post(reverse("workloads:extend", args=["vision", workload.public_id]), {"by": "1h"}, follow=True)
    assert "Maximum runtime extended to" in response.content.decode()


def test_extension_changes_the_maximum_runtime_and_is_audited(world: World) -> None:
    workload = submit(as_(world.alice), world)
    as_(world.alice).post(reverse("workloads:extend", args=["vision", workload.public_id]), {"by": "1h"})
    workload.refresh_from_db()
    assert workload.max_runtime == 3 * 3600
    assert AuditEntry.objects.filter(action="workload.extended").exists()


def test_specification_shows_the_request_without_secret_values(world: World) -> None:
    workload = submit(as_(world.alice), world, secret_env="KEY=hunter2")
    page = as_(world.carol).get(reverse("workloads:detail", args=["vision", workload.public_id]) + "?tab=spec").content
    assert b"hunter2" not in page
    assert b"units_per_pod: 2" in page


def test_specification_on_kubernetes_shows_the_pod_without_its_tokens(world: World) -> None:
    Cluster.objects.update(kind=ClusterKind.KUBERNETES)
    workload = submit(as_(world.alice), world, env="A=1", secret_env="KEY=hunter2")
    address = reverse("workloads:detail", args=["vision", workload.public_id]) + "?tab=spec"
    page = as_(world.alice).get(address).content.decode()
    assert "kind: Pod" in page
    assert "nvidia.com/gpu: &#x27;2&#x27;" in page or "nvidia.com/gpu: 2" in page
    for secret in ("hunter2", *tokens_of(workload.attempts.get()).values()):
        assert secret not in page


def test_every_tab_of_a_workload_that_never_ran_has_its_empty_state(world: World, settings: Any, tmp_path: Any) -> None:
    settings.DATA_DIR, settings.DEBUG = tmp_path, True
    workload = submit(as_(world.alice), world)
    address = reverse("workloads:detail", args=["vision", workload.public_id])
    client = as_(world.alice)
    assert "No files yet" in client.get(address + "?tab=files").content.decode()
    assert "workload.queued" in client.get(address + "?tab=events").content.decode()
    log = client.get(reverse("workloads:log", args=["vision", workload.public_id]))
    assert (log.content, log.headers["X-Log-End"]) == (b"", "0")


def test_home_shows_own_workloads_and_quota_or_three_steps_for_new_users(world: World) -> None:
    mine = reverse("workloads:mine")
    assert "Submit your first workload in three steps" in as_(world.alice).get(mine).content.decode()
    submit(as_(world.alice), world, name="my-job")
    page = as_(world.alice).get(mine).content.decode()
    assert "my-job" in page
    assert "three steps" not in page
    assert "of 4 cards guaranteed, max. 6 cards" in page
    assert "my-job" not in as_(world.carol).get(mine).content.decode()


def test_home_counts_all_own_workloads_and_lists_the_most_urgent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    states = ["recalled", "running", "stopping", "queued", "starting", "admitted"] + ["running"] * 4
    for number, state in enumerate(states):
        workload = submit(as_(world.alice), world, name=f"work-{number}")
        Workload.objects.filter(pk=workload.pk).update(state=state)
    idle = Workload.objects.get(name="work-1")
    attempt = Attempt.objects.get_or_create(workload=idle, number=1, defaults={"cluster": world.pool.group.cluster})[0]
    soon = timezone.now() + dt.timedelta(minutes=9)
    IdleSpell.objects.create(attempt=attempt, since=timezone.now(), warned_at=timezone.now(), stops_at=soon)
    monkeypatch.setattr(home, "SHOWN", 3)
    page = html.unescape(as_(world.alice).get(reverse("workloads:mine")).content.decode())
    counts = re.findall(r"<strong>(\d+)</strong> (\w[\w ]+?)</li>", page)
    assert counts == [("1", "being recalled"), ("5", "running"), ("1", "waiting"), ("2", "starting"), ("1", "stopping")]
    assert list(dict.fromkeys(re.findall(r"work-\d", page))) == ["work-0", "work-1", "work-2"]
    assert "7 more are not shown here." in page
    assert 'href="/d/vision/workloads/?author=alice">Vision (10)</a>' in page


def test_pools_without_quota_for_the_department_are_not_offered(world: World) -> None:
    make.pool("foreign", cards=2)
    page = as_(world.alice).get(new(world.vision)).content.decode()
    assert 'value="foreign"' not in page
    response = as_(world.alice).post(new(world.vision), world.form(pool="foreign"))
    assert response.status_code == 422
    assert Pool.objects.filter(slug="foreign").exists()


def test_all_faults_of_the_form_are_shown_at_once(world: World) -> None:
    wrong = world.form(max_runtime="soon", cpu="-1", priority="5", env="PORTAL_X=1", own_only="on")
    page = as_(world.alice).post("/d/vision/workloads/new/", wrong)
    text = html.unescape(page.content.decode())
    assert page.status_code == 422
    for problem in (
        "Ensure this value is greater than or equal to 0.1",
        "Priorities above 0 are reserved for operators.",
    ):
        assert problem in text
    assert text.count('class="invalid-feedback') >= 4 or text.count("invalid-feedback") >= 4
    assert not Workload.objects.exists()


@pytest.mark.parametrize("kind", [ClusterKind.EMBEDDED, ClusterKind.KUBERNETES])  # the first offers shared volumes
def test_every_part_that_a_verdict_updates_exists_on_the_form(world: World, kind: ClusterKind) -> None:
    Cluster.objects.update(kind=kind)
    client = as_(world.alice)
    page = client.get(reverse("workloads:new", args=["vision"])).content.decode()
    response = client.post(reverse("workloads:verdict", args=["vision"]), world.form()).content.decode()
    targets = re.findall(r'id="([^"]+)" hx-swap-oob', response)
    assert {"inside-machine", "inside-storage"} <= set(targets)
    assert [target for target in targets if f'id="{target}"' not in page] == []
