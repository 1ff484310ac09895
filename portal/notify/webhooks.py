"""A department's webhooks: add, change, test, delete."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence

from portal import audit, names
from portal.access import Actor, Right
from portal.background.hints import wake
from portal.errors import N_, Invalid, Problem
from portal.infra import versions
from portal.infra.crypt import encrypt
from portal.infra.locks import durable
from portal.models import Department, Webhook, WebhookDelivery, WebhookShape
from portal.notify import notices, outbox, safe_http
from portal.notify.webhook_shapes import KEY_BYTES, PREFIX, standard_key

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
    unknown = sorted(set(kinds) - set(notices.SETTABLE))
    if unknown:
        raise Invalid(N_("There are no notifications of type %(kinds)s."), field="kinds", kinds=", ".join(unknown))
    if standard_key(secret) is None:
        raise Invalid(
            N_("After whsec_ there must be base64 of %(least)s to %(most)s bytes. Leave the field empty, and one is made."),
            field="secret", least=KEY_BYTES.start, most=KEY_BYTES.stop - 1,
        )  # fmt: skip
    safe_http.check(url)
    return name


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
    return hook


def change_webhook(
    *,
    actor: Actor,
    webhook: Webhook,
    name: str,
    url: str,
    shape: str,
    secret: str | None,
    kinds: Sequence[str],
    active: bool,
    seen: str = "",
) -> Webhook:
    """Changes a webhook; `secret` None keeps the stored one. Undelivered messages go to the new address.

    Raises Conflict, and what `add_webhook` raises.
    """
    actor.require(Right.STEER, webhook.department)
    name = checked(name, url, shape, secret or "", kinds)
    if secret is None and safe_http.host_of(url) != safe_http.host_of(webhook.url) and webhook.secret:
        raise Invalid(N_("For another host, enter the secret again."), field="secret")
    was_active = webhook.active
    with durable():
        before = _audit_values(Webhook.objects.select_for_update(no_key=True, of=("self",)).get(pk=webhook.pk))
        versions.check(before, seen)
        webhook.name, webhook.url, webhook.shape = name, url, shape
        webhook.kinds, webhook.active = list(dict.fromkeys(kinds)), active
        if active and not was_active:  # switched on again: what waits is tried now
            webhook.failures, webhook.failing_since, webhook.open_until = 0, None, None
        if secret is not None:
            webhook.secret = encrypt(secret)
        webhook.save()
        audit.record(
            actor,
            "webhook.changed",
            str(webhook.pk),
            department=webhook.department,
            before=before,
            after=_audit_values(webhook),
        )
    return webhook


def remove_webhook(*, actor: Actor, webhook: Webhook, seen: str = "") -> None:
    """Deletes a webhook with its undelivered messages. Raises Conflict, Forbidden."""
    actor.require(Right.STEER, webhook.department)
    with durable():
        versions.check(
            _audit_values(Webhook.objects.select_for_update(no_key=True, of=("self",)).get(pk=webhook.pk)), seen
        )
        audit.record(
            actor, "webhook.removed", str(webhook.pk), department=webhook.department, before=_audit_values(webhook)
        )
        Webhook.objects.filter(pk=webhook.pk).delete()


def try_webhook(*, actor: Actor, webhook: Webhook) -> WebhookDelivery:
    """Queues one test message and returns its row, which later shows the HTTP status and any error.

    While a test is waiting to be sent, that one is returned.
    """
    actor.require(Right.STEER, webhook.department)
    with durable():
        webhook = Webhook.objects.select_for_update(no_key=True, of=("self",)).get(pk=webhook.pk)
        waiting = webhook.deliveries.filter(kind=outbox.TEST, sent_at=None, tries=0).first()
        if waiting is not None:
            return waiting
        row = WebhookDelivery.objects.create(
            webhook=webhook, kind=outbox.TEST, data={"department": webhook.department.name}
        )
        audit.record(actor, "webhook.tested", str(webhook.pk), department=webhook.department)
        wake("portal.deliver")
    return row


def mark_of(webhook: Webhook) -> str:
    """The version mark that a form about the webhook carries."""
    return versions.mark(_audit_values(webhook))


def _audit_values(webhook: Webhook) -> dict[str, object]:
    """Values for the audit log: never the secret, and of the address only the host, because chat services put their
    key into it."""
    return {
        "name": webhook.name,
        "host": safe_http.host_of(webhook.url),
        "shape": webhook.shape,
        "language": webhook.language,
        "kinds": webhook.kinds,
        "active": webhook.active,
    }
