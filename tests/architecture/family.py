"""A department with teams. Everything in one of the teams that only its own people may know contains MARK."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

from django.test import Client
from django.utils import timezone

from portal import audit
from portal.access import Actor
from portal.models import Department, Event, InboxItem, Invitation, Role, SavedFilter, User, Webhook
from portal.notify.events import emit
from quotas.models import Budget, Claim, ClaimState, Decision, LedgerEntry, PlanPass, Pool, QuotaRequest, RequestComment
from tests import builders as make
from tests.architecture.doors import PLACES, Door, World, all_doors, backtest_of
from tests.clients import ALL, token_of
from workloads.models import Attempt, IdleExemption, Image, RequestTemplate, Workload

MARK = "zq7secret"
PART = "zq7"  # search text, which a response may repeat


@dataclass
class Family:
    """`lab` has the teams `vision`, whose workloads are marked, and `nlp`; `biology` is another department."""

    departments: dict[str, Department]
    people: dict[str, User]
    tokens: dict[str, str]
    values: dict[str, dict[str, str]]
    marked: list[str] = field(default_factory=list)  # ids of the marked workloads

    def client(self, name: str) -> Client:
        """A client with the token of that name, or with a session of that person."""
        if name in self.tokens:
            return Client(raise_request_exception=False, headers={"Authorization": f"Bearer {self.tokens[name]}"})
        client = Client(raise_request_exception=False)
        client.force_login(self.people[name], backend="django.contrib.auth.backends.ModelBackend")
        return client

    def doors(self, *departments: str) -> list[Door]:
        """Every URL, filled with the objects of each of these departments."""
        doors_by_path = {}
        for values in map(self.values.__getitem__, departments):
            for door in all_doors(World(self.departments["lab"], self.people, values)):
                doors_by_path[door.path] = door
        return list(doors_by_path.values())


def build_family() -> Family:
    lab = make.department("lab")
    teams = {slug: make.department(slug, parent=lab) for slug in ("vision", "nlp")}
    departments = {"lab": lab, **teams, "biology": make.department("biology")}
    pool = make.pool("a100", cards=16, nodes=2)
    for name, units in (("lab", 8), ("vision", 4), ("nlp", 4)):
        make.quota(departments[name], pool, units)
    people = {"nobody": make.user("nobody"), "operator": make.user("operator", is_operator=True)}
    for where, prefix in (("lab", "parent"), ("nlp", "sibling"), ("biology", "other")):
        for role in Role:
            people[f"{prefix}_{role.value}"] = make.member(departments[where], role, f"{prefix}-{role.value}")
    secret = {
        role: make.member(
            departments["vision"], role, f"{MARK}-{role.value}", first_name=f"{MARK}-given", email=f"{MARK}@example.org"
        )
        for role in (Role.VIEWER, Role.MEMBER)
    }
    people |= {"team_viewer": secret[Role.VIEWER], "team_member": secret[Role.MEMBER]}
    people["robot"] = make.user(f"vision.{MARK}", service_of=departments["vision"])
    family = Family(departments, people, {}, {})
    _work(family, pool, secret[Role.MEMBER])
    for name in departments:
        family.values[name] = _values(family, name, pool)
    Event.objects.update(tx=1)  # as if committed: streams send only events that no open transaction can precede
    tokens = {"parents_token": ("parent_owner", "lab"), "operators_token": ("operator", "nlp")}
    family.tokens = {name: token_of(people[who], departments[where], ALL)[1] for name, (who, where) in tokens.items()}
    return family


def _work(family: Family, pool: Pool, author: User) -> None:
    """A workload of vision in each state, and decisions with workloads of vision and nlp on both sides."""
    departments, people = family.departments, family.people
    asking = make.claim(departments["nlp"], pool, 4, user=people["sibling_member"], position=2)
    victim = _marked(
        family, pool, author, 1, ClaimState.LEAVING, borrowed={departments["nlp"]: 1}, preempted_for=asking
    )
    runs = _marked(family, pool, author, 2, ClaimState.HOLDING, own=2)
    waits = _marked(family, pool, author, 3, ClaimState.PENDING, position=1)
    _marked(family, pool, author, 4, ClaimState.RELEASED)
    own = make.holding(departments["nlp"], pool, own=1, user=people["sibling_member"], state=ClaimState.LEAVING)
    why: list[dict[str, Any]] = [
        {"code": "lent_out_returning", "victims": [victim.public_id], "at": 1_900_000_000},
        {"code": "held_for", "claim": waits.public_id},
    ]
    asking.ahead, asking.waiting_on, asking.reasons = [waits.public_id], [victim.public_id], why
    asking.save()
    waits.ahead, waits.reasons = [asking.public_id], [{"code": "held_for", "claim": runs.public_id}]
    waits.save()
    LedgerEntry.objects.update(lent_since=timezone.now())
    plan = PlanPass.objects.create(group=pool.group, snapshot=b"")
    for claim, victims in ((asking, [victim, runs]), (waits, [own, victim])):
        row = Decision.objects.create(
            plan_pass=plan, kind="reclaim", claim=claim, department=claim.department, pool=pool,
            data={"ahead": [waits.public_id], "waiting_on": [victim.public_id], "reasons": claim.reasons},
        )  # fmt: skip
        row.victims.set(victims)


def _marked(family: Family, pool: Pool, author: User, number: int, state: str, **fields: Any) -> Claim:
    vision = family.departments["vision"]
    public_id = f"{MARK}{number:017d}"
    image, _created = Image.objects.get_or_create(name="python:3.11", title="Python", interpreter="python")
    live = {ClaimState.HOLDING: "running", ClaimState.LEAVING: "recalled", ClaimState.PENDING: "queued"}
    workload = Workload.objects.create(
        department=vision, author=author, kind="job", name=f"{MARK}-run-{number}", pool=pool, image=image,
        public_id=public_id, command=["python", f"{MARK}.py"], env={"NAME": MARK}, units_per_pod=1, attempts_made=1,
        state=live.get(ClaimState(state), "failed"), message=f"{MARK} went wrong", max_runtime=3600,
        finished_at=timezone.now() if state == ClaimState.RELEASED else None,
    )  # fmt: skip
    own, borrowed = fields.pop("own", 0), fields.pop("borrowed", {})
    about = {
        "public_id": f"{MARK}c{number:016d}",
        "workload": public_id,
        "user": author,
        "name": workload.name,
        **fields,
    }
    placement = [{"pod": 0, "node": "a100-n1", "cards": [number]}]
    if own or borrowed:
        claim = make.holding(vision, pool, own, borrowed, state, placement=placement, **about)
    else:
        claim = make.claim(vision, pool, 1, state, **about)
    Attempt.objects.create(
        workload=workload, number=1, claim=claim, cluster=pool.group.cluster, run_name=f"w-{public_id}-1",
        started_at=timezone.now() if own or borrowed else None, message=f"{MARK} went wrong",
    )  # fmt: skip
    emit("workload.running", department=vision, workload=public_id, reason=MARK)
    audit.record(Actor(author), "workload.submitted", public_id, department=vision, after={"name": workload.name})
    family.marked.append(public_id)
    return claim


def _values(family: Family, name: str, pool: Pool) -> dict[str, str]:
    """The values of URL variables for this department. Those of vision are all marked."""
    department, marked = family.departments[name], name == "vision"
    text = MARK if marked else name
    owner = family.people["team_member"] if marked else family.people["operator"]
    ids = {"public_id": f"{MARK}r{0:016d}"} if marked else {}
    recall = make.claim(department, pool, 1, ClaimState.HOLDING, pods=0, user=owner, name=f"{text}-recall", **ids)
    emit("recall.asked", department=department, recall=recall.public_id, by=text)
    decision = Decision.objects.filter(department=department).first() or Decision.objects.create(
        plan_pass=PlanPass.objects.create(group=pool.group, snapshot=b""), kind="admit", claim=recall,
        department=department, pool=pool, data={},
    )  # fmt: skip
    invitation = Invitation.objects.create(
        department=department, digest=text.ljust(64, "0"), created_by=owner, email=f"{text}@example.org",
        expires_at=timezone.now() + dt.timedelta(days=1),
    )  # fmt: skip
    hook = Webhook.objects.create(department=department, name=text, url=f"https://{text}.example.org/")
    token, _secret = token_of(owner, department, name=f"{text}-token")
    item = InboxItem.objects.create(
        user=owner, kind="workload.failed", department=department, data={"name": text, "reason": text}
    )
    asking = QuotaRequest.objects.create(
        department=department, pool=pool, author=owner, units=8, before=4, why=f"{text}-why"
    )
    RequestComment.objects.create(request=asking, author=owner, text=f"{text}-comment")
    exemption = IdleExemption.objects.create(
        department=department, why=f"{text}-why", until=timezone.now() + dt.timedelta(days=1), author=owner
    )
    person = owner if marked else None  # only the person and the owners see a person's budget
    budget = Budget.objects.create(department=department, person=person, hours=1, action="no_new_work")
    body = {"kind": "job", "name": text, "pool": pool.slug, "image": "python:3.11", "command": [text], "units_per_pod": 1,
            "cpu": 1, "memory_mib": 1024}  # fmt: skip
    template = RequestTemplate.objects.create(department=department, name=f"{text}-template", body=body)
    image = Image.objects.get(name="python:3.11")
    workload = family.marked[1] if marked else _plain(department, pool, owner, image)
    return {
        "department": department.slug, "pool": pool.slug, "workload": workload, "recall": recall.public_id,
        "decision": decision.public_id, "invitation": str(invitation.pk), "webhook": str(hook.pk),
        "token": "no-such-invitation", "prefix": token.prefix,
        "username": family.people["team_member"].username if marked else "robot",
        "cluster": pool.group.cluster.name, "node": str(pool.group.cluster.nodes.first().pk),  # type: ignore[union-attr]
        **PLACES, "secret": "nobodys", "kind": "jobset", "change": "no-such-change", "quarantine": "no-such-quarantine",
        "image": str(image.pk), "preset": "0",
        "item": str(item.pk), "quota_request": asking.public_id, "budget": budget.public_id,
        "backtest": backtest_of(pool, owner),
        "template": template.public_id,
        "saved": str(SavedFilter.objects.get_or_create(user=owner, path="/", name=text)[0].pk),
        "exemption": exemption.public_id, "rule": "1", "account": "1", "uidb36": "1",
        "key": "no-such-key", "provider": "none", "provider_id": "none", "organization_slug": "none", "pk": "1",
    }  # fmt: skip


def _plain(department: Department, pool: Pool, author: User, image: Image) -> str:
    workload = Workload.objects.create(
        department=department, author=author, kind="job", name="plain", pool=pool, image=image, command=["python"],
        units_per_pod=1, state="queued", attempts_made=1,
    )  # fmt: skip
    claim = make.claim(department, pool, 1, workload=workload.public_id, user=author, name="plain")
    Attempt.objects.create(
        workload=workload, number=1, claim=claim, cluster=pool.group.cluster, run_name=f"w-{workload.public_id}-1"
    )
    return workload.public_id
