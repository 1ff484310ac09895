"""MIG: a card cut by hardware into instances of fixed profiles; one unit is one memory slice.

| | |
|---|---|
| recognised by | resources `nvidia.com/mig-*`, a product label with `-MIG-`, or a `mig.config.state` other than |
| | success |
| asked for by | strategy mixed: `limits: {nvidia.com/mig-<profile>: 1}` (`+` becomes `.`); single: `nvidia.com/gpu: 1` |
| | and the product label `…-MIG-<profile>`; always with the product, since the profile 1g.10gb exists on |
| | several products |
| unit | slice: a memory slice, 8 a card (A30: 4); a profile is charged the memory slices it covers, 3g = 4 |
| isolation | full: memory, compute, bandwidth and faults, by hardware |
| errors | `-MIG-INVALID` (cards cut unevenly under strategy single) and mig.config.state pending, rebooting or |
| | failed: the |
| | node is held back |
| limits | one instance a pod: one process cannot use several as several GPUs; no NCCL between instances |
| beside | under strategy mixed whole cards of the node stay whole cards: those in `nvidia.com/gpu`, never |
| | `gpu.count` |
| read back | `allocatedResourcesStatus` of the container (Kubernetes 1.36) |
| source | NVIDIA/k8s-device-plugin internal/rm/rm.go, internal/lm/mig-strategy.go; NVIDIA/gpu-operator |
| | mig-manager; MIG guide |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from quotas.engine.mig_profiles import KNOWN, PRODUCTS, SHAPES, Profile, derived, derived_key
from workloads.runtime.base import CardInfo, NodeInfo, Offer
from workloads.sharing import timeslicing, whole
from workloads.sharing.api import FULL, N_, About, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import peers, reserved_env
from workloads.sharing.nodes import Facts, allocated_devices, entry, even_cards, of_product

PREFIX, SINGLE, SHARED = "nvidia.com/mig-", "-MIG-", "shared"
STATE = "nvidia.com/mig.config.state"

ABOUT = About(
    key="mig",
    order=100,
    title=N_("MIG instances"),
    unit="slice",
    gives=N_("A hardware partition of a card with its own memory, compute and cache."),
    risks=N_("Each instance is a separate small GPU: several cannot work together or communicate with each other."),
    isolation=N_("Full, by hardware: memory, compute and faults."),
    memory=FULL,
    compute=FULL,
    faults=FULL,
    beside=frozenset({"whole"}),
)

# The family in a product's name → its memory slices and, by its GB, the table of profiles; the first one if the GB are
# unknown. For A100 and A800 they are always known, or follow from the profiles.
A100 = (8, {40: "A100-40GB", 80: "A100-80GB"})
HOPPER = {80: "H100-80GB", 94: "H100-94GB", 96: "H100-96GB"}
FAMILIES: dict[str, tuple[int, dict[int, str]]] = {
    "A30": (4, {24: "A30"}),
    "A100": A100,
    "A800": A100,
    "A100X": (8, {80: "A100-80GB"}),
    "H100": (8, HOPPER),
    "H800": (8, HOPPER),
    "H20": (8, {96: "H100-96GB", 141: "H200-141GB"}),
    "H200": (8, {141: "H200-141GB"}),
    "GH200": (8, {96: "H100-96GB", 144: "GH200-144GB"}),
    "B200": (8, {180: "B200-180GB"}),
    "GB200": (8, {186: "GB200-186GB"}),
    "B300": (8, {269: "B300-269GB"}),
    "GB300": (8, {278: derived_key(8, 278)}),
    "RTX-PRO-6000": (4, {96: "RTX-PRO-6000-96GB"}),
    "RTX-PRO-5000": (4, {48: derived_key(4, 48), 72: derived_key(4, 72)}),
    "RTX-PRO-4500": (2, {32: derived_key(2, 32)}),
}
HINTS = {"NVL": 94, "3E": 141}  # words in names that imply the GB, in families with such cards
GIGABYTES = re.compile(r"([0-9]{2,3})GB?")
NEARLY = 0.06  # share of a card's memory that drivers reserve, or count differently


def table_of(product: str, memory_mib: int = 0, profiles: Iterable[str] = ()) -> str | None:
    """The key in PRODUCTS of a product's table, however its name is spelled; None for a card that is not known to have MIG.
    `memory_mib`: of a whole card, 0 if unknown; `profiles`: those on the card, which decide if the name is ambiguous."""
    words = re.split(r"[-_ ]+", product.partition(SINGLE)[0].removesuffix(timeslicing.SUFFIX).upper())
    family = next((name for name in FAMILIES if _has(words, name.split("-"))), None)
    if family is None:
        return None
    slices, tables = FAMILIES[family]
    keys = [_key(gb, slices, tables) for gb in _gigabytes(words, memory_mib, tables)]
    if keys and keys[0] in tables.values() and not profiles:
        return keys[0]
    names, known = list(profiles), [key for key in keys if key in tables.values()] or list(tables.values())
    naming = (key for key in known if names and all(PRODUCTS[key].is_said(name) for name in names))
    fitting = (key for key in [*keys, *known] if all(name in PRODUCTS[key] for name in names))
    return next(naming, None) or next(fitting, None) or known[0]


def _has(words: list[str], wanted: list[str]) -> bool:
    return any(words[start : start + len(wanted)] == wanted for start in range(len(words)))


def _key(gb: int, slices: int, tables: dict[int, str]) -> str:
    nearest = min(tables, key=lambda known: abs(known - gb))
    return tables[nearest] if abs(nearest - gb) <= NEARLY * nearest else derived_key(slices, gb)


def _gigabytes(words: list[str], memory_mib: int, tables: dict[int, str]) -> Iterator[int]:
    """The card's possible GB: by its label, else by its name. In a GH200's name it may be the processor's memory."""
    if memory_mib:
        yield -(-memory_mib // 1024)
    yield from (gb for word, gb in HINTS.items() if word in words and gb in tables)
    sizes = [int(match[1]) for word in words if (match := GIGABYTES.fullmatch(word))]
    yield from (gb for gb in sizes if gb and ("GH200" not in words or gb == 144))


def guessed(memory_mib: int, profiles: Iterable[str]) -> str | None:
    """The key of a derived table for an unknown card with MIG: by its memory, or by a profile's share of it. None if its
    profiles fit no card."""
    names = [name.partition("gb")[0].split("g.") for name in profiles]
    try:
        shares = {(int(compute), int(gb)) for compute, gb in names}
    except ValueError:
        return None
    for slices in (8, 4, 2):
        sizes = [(gb, SHAPES[slices].get(compute)) for compute, gb in shares]
        totals = {-(-memory_mib // 1024)} if memory_mib else {gb * slices // min(size) for gb, size in sizes if size}
        for total in sorted(totals - {0}):
            if shares and all(derived(slices, total, f"{compute}g.{gb}gb") for compute, gb in shares):
                return derived_key(slices, total)
    return None


def labelled_memory(labels: Mapping[str, str]) -> int:
    """MiB of a card (with strategy single: of an instance) by the label of GPU feature discovery; 0: unknown."""
    text = labels.get("nvidia.com/gpu.memory", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 8 else 0


def labelled_table(product: str, labels: Mapping[str, str], instances: Iterable[str]) -> str | None:
    """The key of the table of a card with MIG, known or derived; None if there is none."""
    memory, profiles = 0 if SINGLE in product else labelled_memory(labels), list(instances)
    return table_of(product, memory, profiles) or guessed(memory, profiles)


def slices(table: str) -> int:
    """Memory slices of a card: 8, or 4 for an A30."""
    return PRODUCTS[table].slices


def most_of(profile: Profile) -> int:
    """Instances of one profile on one card."""
    return 1 if profile.media else len(profile.starts)


def applies(node: Facts) -> Note | None:
    if SINGLE in node.product:
        return Note(N_("its product is %(product)s"), {"product": node.product})
    if offered := node.offered(PREFIX):
        return Note(N_("it advertises %(resource)s"), {"resource": ", ".join(offered)[:100]})
    if (state := node.labels.get(STATE, "success")) != "success":
        return Note(N_("its mig.config.state is %(state)s"), {"state": state[:40]})
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    single = parts(node.product)[1]
    instances = _instances(node, single)
    table = labelled_table(node.product, node.labels, instances)
    units = slices(table) if table else 1
    beside = () if single else _whole_beside(node)
    first = len(beside[0].cards) if beside else 0
    count = timeslicing.settings_cards(node, settings)
    if not count:
        count = node.number(whole.COUNT)
        if single and table and single in PRODUCTS[table]:
            count = -(-count // most_of(PRODUCTS[table][single]))  # with strategy single the label counts instances
    cut = even_cards(node, count, units, count * units if instances else 0)[first:]
    return entry(
        node,
        ABOUT,
        product=node.product,
        units_per_card=units,
        cards=cut,
        instances=instances,
        mig=table,
        beside=beside,
        because=and_derived(
            applies(node) or Note(N_("its mig.config.state is %(state)s"), {"state": "success"}), table, instances
        ),
        held_back=_held(node, single, table, instances, cut),
    )


def and_derived(because: Note, table: str | None, instances: Iterable[str]) -> Note:
    """The reason, with the profiles that are in no table of NVIDIA's and the slices derived from their names."""
    known = [name for name in instances if table and name in PRODUCTS[table]]
    new = [name for name in known if table and not (table in KNOWN and PRODUCTS[table].is_said(name))]
    if table is None or not new:
        return because
    sizes = ", ".join(f"{name} = {PRODUCTS[table][name].size}/{slices(table)}" for name in new)
    return Note(
        N_("%(because)s; slices derived from the names of the profiles: %(said)s"),
        {"because": because, "said": sizes[:100]},
    )


def parts(product: str) -> tuple[str, str]:
    """The card's product and, with strategy single, the profile that the label names: ("…-40GB", "1g.5gb+me")."""
    base, _, single = product.partition(SINGLE)
    return base, _profile(single)


def _held(
    node: Facts, single: str, table: str | None, instances: dict[str, int], cut: tuple[CardInfo, ...]
) -> Note | None:
    state = node.labels.get(STATE, "success")
    if state != "success":
        return Note(N_("mig.config.state is %(state)s"), {"state": state[:40]})
    if single == "INVALID":
        return Note(N_("its cards are partitioned differently: %(product)s"), {"product": node.product})
    if table is None:
        return Note(N_("the MIG profiles of %(product)s are not known"), {"product": node.product or "?"})
    if single.endswith(timeslicing.SUFFIX) or any(name.endswith(SHARED) for name in instances):
        return Note(N_("its instances are time-sliced, which is not supported"))
    if not cut and instances:
        return Note(N_("its labels do not say how many cards are partitioned"))
    if (wrong := misfit(table, instances, len(cut))) is not None:
        return wrong
    if not instances:
        return Note(N_("its device plugin offers no instance"))
    return _half_changed(node, single)


def _half_changed(node: Facts, single: str) -> Note | None:
    """Why the node is held back if its labels and resources show different partitions: one of them is outdated."""
    labels = [name for name in node.labels if name.startswith(PREFIX) and name.endswith(".count")]
    counts = {name.removesuffix(".count"): node.number(name) for name in labels}
    if single:
        counts = {whole.RESOURCE: node.number(whole.COUNT)}
    for resource, count in sorted(counts.items()):
        if count != (offered := node.capacity(resource)):
            numbers = {"label": count, "resource": resource, "offered": offered}
            return Note(
                N_("change incomplete: its labels say %(label)s of %(resource)s, it advertises %(offered)s"), numbers
            )
    return None


def misfit(table: str, instances: Mapping[str, int], cards: int) -> Note | None:
    """Why so many partitioned cards cannot have these instances; None: they can."""
    if unknown := sorted(name for name in instances if name not in PRODUCTS[table]):
        return Note(N_("%(table)s has no profile %(profile)s"), {"table": table, "profile": unknown[0][:40]})
    for name, amount in sorted(instances.items()):
        most = cards * most_of(PRODUCTS[table][name])
        if amount > most:
            numbers: dict[str, str | int] = {"amount": amount, "profile": name, "cards": cards, "most": most}
            return Note(
                N_("it has %(amount)s of %(profile)s, but %(cards)s partitioned cards hold at most %(most)s"), numbers
            )
    taken = sum(PRODUCTS[table][name].size * amount for name, amount in instances.items())
    if taken > cards * slices(table):
        numbers = {"taken": taken, "cards": cards, "slices": cards * slices(table)}
        return Note(
            N_("its instances cover %(taken)s slices, but its %(cards)s partitioned cards have %(slices)s"), numbers
        )
    return None


def _whole_beside(node: Facts) -> tuple[Offer, ...]:
    """Whole cards of a mixed node: `nvidia.com/gpu` counts only those that are not partitioned."""
    total = node.capacity(whole.RESOURCE) if node.offered(PREFIX) else 0
    if not total:
        return ()
    cards = whole.cards(node, total, node.allocatable(whole.RESOURCE))
    return (Offer(whole.ABOUT.key, node.product, whole.ABOUT.unit, 1, cards),) if cards else ()


def _instances(node: Facts, single: str) -> dict[str, int]:
    if single:
        count = node.allocatable(whole.RESOURCE)
        return {single: count} if count and single != "INVALID" else {}
    return {_profile(name.removeprefix(PREFIX)): count for name, count in node.offered(PREFIX).items() if count}


def _profile(name: str) -> str:
    """The profile in a resource's name: 1g.10gb.me → 1g.10gb+me."""
    head, dot, tail = name.partition("gb.")
    return f"{head}gb+{tail}" if dot else name


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    problems = [*reserved_env(request, ABOUT), *peers(request, ABOUT)]
    base, single = parts(request.product)
    table = request.table or table_of(base, 0, [request.profile] if request.profile else ())
    if table is None:
        message = N_("The MIG profiles of %(product)s are not known.")
        problems.append(Problem("profile", "no_such_product", message, {"product": request.product}))
    elif (profile := PRODUCTS[table].get(request.profile or "")) is None or (single and request.profile != single):
        numbers = {"product": base, "profile": request.profile or "–", "has": single or ", ".join(PRODUCTS[table])}
        message = N_("%(product)s has no profile %(profile)s here; it has %(has)s.")
        problems.append(Problem("profile", "no_such_profile", message, numbers))
    elif request.units != (size := profile.size):
        message = N_("One instance of %(profile)s takes %(size)s slices, not %(asked)s.")
        sizes = {"profile": request.profile, "size": size, "asked": request.units}
        problems.append(Problem("units_per_pod", "wrong_size", message, sizes))
    if request.cores is not None:
        message = N_("Compute cannot be limited here. Leave it empty.")
        problems.append(Problem("cores_per_pod", "no_cores", message, {"asked": request.cores}))
    return tuple(problems)


def manifest(request: Request, settings: Settings) -> PodPatch:
    """Exactly one instance: several would not be several GPUs to one process. The node selector is needed because a profile's
    name does not identify the card (1g.10gb exists on three products)."""
    if SINGLE in request.product or request.profile is None:
        return PodPatch(limits={whole.RESOURCE: "1"}, node_selector=of_product(request))
    return PodPatch(limits={PREFIX + request.profile.replace("+", "."): "1"}, node_selector=of_product(request))


def read_back(pod: Json) -> tuple[Held, ...]:
    return allocated_devices(pod)
