"""The allowed values of a cluster's options: their types, down to the elements of lists and objects, and their form.
Every check raises ValueError that names the place in the JSON (`tolerations[0].key`), because an operator typed it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from ipaddress import ip_network
from typing import Any, get_args, get_origin

TOLERATION = {"key": str, "operator": str, "value": str, "effect": str, "tolerationSeconds": int}
LARGEST, LONGEST = 2**31 - 1, 253
LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
DOMAIN = rf"{LABEL}(\.{LABEL})*"
WORD = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
KEY = f"({DOMAIN}/)?{WORD}"
SIZE = r"(?=.*[1-9])[0-9]{1,12}(\.[0-9]{1,9})?(k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?"

NAME_OF_OBJECT = (DOMAIN, "a name as Kubernetes has them: lowercase letters, digits, hyphens and dots")
NAMESPACE = (LABEL, "the name of a namespace: lowercase letters, digits and hyphens")
WITH_NAMESPACE = (f"{LABEL}/{DOMAIN}", "a namespace and a name, such as gpu-operator/config")
WITH_SELECTOR = (f"{LABEL}/[^\\s/]\\S*", "a namespace and a selector, such as gpu-operator/app=device-plugin")
QUANTITY = (SIZE, "a size such as 50Gi")
ONE_LINE = (r"\S+", "a word without spaces")
FORMS: Mapping[str, tuple[str, str]] = {
    "instance": (r"[^\s].*[^\s]|\S", "a name"),
    "namespace_prefix": ("[a-z0-9][-a-z0-9]{0,30}", "lowercase letters, digits and hyphens, at most 31"),
    "storage_class": NAME_OF_OBJECT, "shared_storage_class": NAME_OF_OBJECT, "runtime_class": NAME_OF_OBJECT,
    "ingress_class": NAME_OF_OBJECT, "tls_secret": NAME_OF_OBJECT, "image_pull_secrets": NAME_OF_OBJECT,
    "service_domain": NAME_OF_OBJECT,
    "volume_size": QUANTITY, "department_volume": QUANTITY, "user_volume": QUANTITY,
    "portal_namespace": NAMESPACE, "ingress_namespaces": NAMESPACE,
    "plugin_config": WITH_NAMESPACE, "mig_config": WITH_NAMESPACE,
    "gateway": (f"({LABEL}/)?{LABEL}", "a Gateway as namespace/name"),
    "plugin_pods": WITH_SELECTOR, "mig_manager_pods": WITH_SELECTOR,
    "rdma_resource": (f"{DOMAIN}/{WORD}", "a resource such as rdma/hca_shared_devices_a"),
    "files_image": ONE_LINE, "kai_queue": ONE_LINE,
}  # fmt: skip
NEEDED = ("instance", "volume_size", "files_image", "plugin_config", "plugin_pods", "mig_manager_pods", "kai_queue")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "volume": ("pvc", "emptyDir"),
    "access_mode": ("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"),
    "shared_access_mode": ("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"),
    "image_pull_policy": ("Always", "IfNotPresent", "Never"),
    "service_scheme": ("http", "https"),
    "new_pools": ("make", "ask"),
}
BOUNDS: Mapping[str, tuple[int, int]] = {
    "run_as": (1, LARGEST),
    "ready_probe_seconds": (0, 3600),
    "give_up_after": (1, 10**7),
    "lost_after": (0, 10**7),
    "priority": (-LARGEST, 10**9),
    "volcano_memory_factor": (1, 10**6),
}


def typed(place: str, value: Any, kind: Any) -> Any:
    """`value` as an instance of `kind`, a list as a tuple. `kind`: str, bool, int, tuple[T, ...], Mapping[str, T] or Any."""
    if kind is Any:
        return value
    if kind is str:
        if not isinstance(value, str):
            raise ValueError(f"option {place} must be a string, in quotes")
        if not value.isprintable():
            raise ValueError(f"option {place} must be one line without control characters")
        return value
    if kind is bool:
        if not isinstance(value, bool):
            raise ValueError(f"option {place} must be true or false")
        return value
    if kind is int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"option {place} must be a whole number")
        return value
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"option {place} must be a list")
        return tuple(typed(f"{place}[{at}]", each, get_args(kind)[0]) for at, each in enumerate(value))
    if not isinstance(value, Mapping):
        raise ValueError(f"option {place} must be an object")
    for key in value:
        typed(f"{place}: the key {key!r:.60}", key, str)
    return {key: typed(f"{place}.{key}", each, get_args(kind)[1]) for key, each in value.items()}


def check_toleration(place: str, toleration: Mapping[str, Any]) -> None:
    """The same check as the API server's, which would refuse every pod with a wrong toleration."""
    for key, value in toleration.items():
        if key not in TOLERATION:
            raise ValueError(f"option {place}.{key} is not known: a toleration has {', '.join(TOLERATION)}")
        typed(f"{place}.{key}", value, TOLERATION[key])
    key, operator, value = (toleration.get(name, "") for name in ("key", "operator", "value"))
    one_of(f"{place}.operator", operator or "Equal", ("Equal", "Exists"))
    one_of(f"{place}.effect", toleration.get("effect", ""), ("", "NoSchedule", "PreferNoSchedule", "NoExecute"))
    if key and not re.fullmatch(KEY, key):
        raise ValueError(f"option {place}.key must be the key of a taint such as nvidia.com/gpu")
    if not key and operator != "Exists":
        raise ValueError(f"option {place}.key is needed unless the operator is Exists")
    if value and (operator == "Exists" or not re.fullmatch(WORD, value)):
        raise ValueError(
            f"option {place}.value must be {'left out with Exists' if operator == 'Exists' else 'a label'}"
        )
    if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
        raise ValueError(f"option {place}.tolerationSeconds needs the effect NoExecute")


def check_network(place: str, cidr: str) -> None:
    try:
        ip_network(cidr)
    except ValueError as error:
        raise ValueError(f"option {place}: {cidr!r} is not a network such as 10.0.0.0/24 ({error})") from None


def check_forms(values: Mapping[str, Any]) -> None:
    """Refuse values that the API server would refuse in every pod, claim or namespace. Called when an operator changes options,
    not when they are read, so that a cluster with older options keeps working."""
    for key, value in values.items():
        if key in CHOICES:
            one_of(key, value, CHOICES[key])
        elif key in BOUNDS:
            least, most = BOUNDS[key]
            if not least <= value <= most:
                raise ValueError(f"option {key} must be from {least} to {most}")
        elif key in FORMS:
            form, words = FORMS[key]
            _each(key, value, lambda place, text: _formed(place, text, form, words))  # noqa: B023 called at once
            if key in NEEDED and not value:
                raise ValueError(f"option {key} must be {words}, not empty")
    for at, toleration in enumerate(values.get("tolerations", ())):
        check_toleration(f"tolerations[{at}]", toleration)


def _each(key: str, value: Any, check: Callable[[str, str], None]) -> None:
    if isinstance(value, str):
        if value:
            check(key, value)
        return
    for at, each in enumerate(value):
        check(f"{key}[{at}]", each)


def _formed(place: str, text: str, form: str, words: str) -> None:
    if len(text) > LONGEST or not re.fullmatch(form, text):
        raise ValueError(f"option {place} must be {words}")


def one_of(place: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"option {place} must be one of {', '.join(each for each in allowed if each)}")
