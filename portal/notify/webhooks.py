"""A department's webhooks: add, change, rotate the secret, test, delete."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Sequence
from typing import TypedDict, Unpack

from portal import audit, names
from portal.access import Actor, NotVisible, Right, department_for
from portal.background.hints import wake
from portal.errors import N_, Invalid, Problem
from portal.infra import versions
from portal.infra.crypt import encrypt
from portal.infra.locks import durable
from portal.models import Department, Webhook, WebhookDelivery, WebhookShape
from portal.notify import notices, outbox, safe_http
from portal.notify.webhook_shapes import KEY_BYTES, PREFIX, SIGNED, standard_key

MOST = 20


class TooManyWebhooks(Problem):
    code = "too_many_webhooks"
    message = N_("%(department)s already has %(count)s webhooks, the maximum. Delete one first.")


def new_secret() -> str:
    """A secret of Standard Webhooks."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def checked(name: str, url: str, shape: str, secret: str, kinds: Sequence[str]) -> str:
    """The name, tidied. Raises Invalid with the field at fault; NotAllowed for a host the operator does not allow."""
    name = names.checked(name)
    if not name:
        raise Invalid(N_("Enter a name for the webhook."), field="name")
    if shape not in WebhookShape.values:
        raise Invalid(N_("Choose one of the formats %(shapes)s."), field="shape", shapes=", ".join(WebhookShape.values))
    unknown = sorted(set(kinds) - {kind for kind, known in notices.KINDS.items() if known.for_webhooks})
    if unknown:
        raise Invalid(N_("There are no notifications of type %(kinds)s."), field="kinds", kinds=", ".join(unknown))
    if standard_key(secret) is None:
        raise Invalid(
            N_("After whsec_, enter %(least)s to %(most)s bytes in base64. Leave the field empty to have a secret generated."),
            field="secret", least=KEY_BYTES.start, most=KEY_BYTES.stop - 1,
        )  # fmt: skip
    safe_http.check(url)
    return name


def generated_secret(shape: str, secret: str) -> str:
    """A new secret, to be shown once, if the format needs one and `secret` is empty; else ""."""
    return new_secret() if shape == WebhookShape.GENERIC and not secret else ""


def add_webhook(
    *,
    actor: Actor,
    department: Department,
    name: str,
    url: str,
    shape: str,
    secret: str = "",
    language: str = "en",
    kinds: Sequence[str] = (),
    on_commit_row: Callable[[Webhook], None] | None = None,
) -> Webhook:
    """Adds a webhook for these kinds of notices (none: all). The secret is stored encrypted and never shown again.

    Raises Forbidden, Invalid, NotAllowed, TooManyWebhooks.
    """
    actor.require(Right.STEER, department)
    name = checked(name, url, shape, secret, kinds)
    with durable():
        Department.objects.select_for_update(no_key=True, of=("self",)).get(pk=department.pk)  # the count must hold
        count = department.webhooks.count()
        if count >= MOST:
            raise TooManyWebhooks(department=department.name, count=count)
        hook = Webhook.objects.create(
            department=department,
            name=name,
            url=url,
            shape=shape,
            secret=encrypt(secret),
            language=language,
            kinds=list(dict.fromkeys(kinds)),
        )
        audit.record(actor, "webhook.added", str(hook.pk), department=department, after=_audit_values(hook))
        if on_commit_row:
            on_commit_row(hook)
    return hook


class Changes(TypedDict, total=False):
    """What may be changed of a webhook; what is absent stays as it is, and so does a secret of None."""

    name: str
    url: str
    shape: str
    secret: str | None
    language: str
    kinds: Sequence[str]
    active: bool


def change_webhook(
    *, actor: Actor, webhook: Webhook, seen: str = "", expected_version: int | None = None, **changes: Unpack[Changes]
) -> Webhook:
    """Changes a webhook. Undelivered messages go to the new address.

    Raises Conflict (`seen` is outdated), Stale (`expected_version` is), NotVisible, and what `add_webhook` raises.
    """
    actor.require(Right.STEER, webhook.department)
    with durable():
        row = _locked(webhook, seen, expected_version)
        before, was_active, host = _audit_values(row), row.active, safe_http.host_of(row.url)
        secret = changes.pop("secret", None)
        for field, value in changes.items():
            setattr(row, field, value)
        row.kinds = list(dict.fromkeys(row.kinds))
        row.name = checked(row.name, row.url, row.shape, secret or "", row.kinds)
        if secret is None and row.secret and safe_http.host_of(row.url) != host:
            raise Invalid(N_("For another host, enter the secret again."), field="secret")
        if row.active and not was_active:  # switched on again: waiting messages are tried now
            row.failures, row.failing_since, row.open_until = 0, None, None
        if secret is not None:
            row.secret = encrypt(secret)
        row.version += 1
        row.save()
        audit.record(
            actor, "webhook.changed", str(row.pk), department=row.department, before=before, after=_audit_values(row)
        )
    return row


def rotate_secret(*, actor: Actor, webhook: Webhook, secret: str = "", seen: str = "") -> str:
    """Replaces the secret; returns the new one, which is generated if none is given. Messages that the receiver refuses until
    it has the new one are tried again like every failed delivery.

    Raises Conflict, Forbidden, NotVisible, and Invalid (secret) if the chat service generates the secret or the format has
    none.
    """
    actor.require(Right.STEER, webhook.department)
    with durable():
        row = _locked(webhook, seen)
        if row.shape not in SIGNED:
            raise Invalid(
                N_("Webhooks in the format %(shape)s have no secret: the key is in their address."),
                field="secret", shape=row.get_shape_display(),
            )  # fmt: skip
        secret = secret or generated_secret(row.shape, "")
        if not secret:
            raise Invalid(N_("Enter the secret that %(shape)s shows."), field="secret", shape=row.get_shape_display())
        checked(row.name, row.url, row.shape, secret, row.kinds)
        row.secret, row.version = encrypt(secret), row.version + 1
        row.save(update_fields=["secret", "version"])
        audit.record(actor, "webhook.secret_rotated", str(row.pk), department=row.department)
    return secret


def _locked(webhook: Webhook, seen: str, expected_version: int | None = None) -> Webhook:
    """The current row, locked. Raises Conflict, Stale, NotVisible (it has been deleted)."""
    rows = Webhook.objects.select_related("department").select_for_update(no_key=True, of=("self",))
    row = rows.filter(pk=webhook.pk).first()
    if row is None:
        raise NotVisible
    versions.check(_audit_values(row), seen)
    if expected_version is not None:
        versions.check_fresh(row.version, expected_version)
    return row


def remove_webhook(*, actor: Actor, webhook: Webhook, seen: str = "", expected_version: int | None = None) -> None:
    """Deletes a webhook with its undelivered messages. Raises Conflict, Stale, Forbidden, NotVisible."""
    actor.require(Right.STEER, webhook.department)
    with durable():
        row = _locked(webhook, seen, expected_version)
        audit.record(actor, "webhook.removed", str(row.pk), department=row.department, before=_audit_values(row))
        row.delete()


def try_webhook(*, actor: Actor, webhook: Webhook) -> WebhookDelivery:
    """Queues one test message and returns its row, which later shows the HTTP status and any error.

    While a test is waiting to be sent, that one is returned. Raises Forbidden, NotVisible.
    """
    actor.require(Right.STEER, webhook.department)
    with durable():
        webhook = _locked(webhook, "")
        waiting = webhook.deliveries.filter(kind=outbox.TEST, sent_at=None, tries=0).first()
        if waiting is not None:
            return waiting
        row = WebhookDelivery.objects.create(
            webhook=webhook, kind=outbox.TEST, data={"department": webhook.department.name}
        )
        audit.record(actor, "webhook.tested", str(webhook.pk), department=webhook.department)
        wake("portal.deliver")
    return row


def webhook_for(actor: Actor, department: str, pk: int) -> Webhook:
    """A webhook of a department that the actor may manage. Raises NotVisible, Forbidden."""
    where = department_for(actor, department, Right.STEER)
    row = Webhook.objects.filter(pk=pk, department=where).select_related("department").first()
    if row is None:
        raise NotVisible
    return row


def mark_of(webhook: Webhook) -> str:
    """The version mark that a form about the webhook carries."""
    return versions.mark(_audit_values(webhook))


def _audit_values(webhook: Webhook) -> dict[str, object]:
    """Values for the audit log: never the secret, and only the host of the address, because chat services put their key into
    it."""
    return {
        "name": webhook.name,
        "host": safe_http.host_of(webhook.url),
        "shape": webhook.shape,
        "language": webhook.language,
        "kinds": webhook.kinds,
        "active": webhook.active,
    }
