"""Writes docs/gpu-sharing.md from the modules of workloads/sharing: `make docs`. With --check it only compares.

A module's docstring is a sentence and a table of two columns; a row with an empty first column continues the one above.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from workloads.sharing import SYSTEMS, System  # noqa: E402
from workloads.sharing.api import FULL, NONE, SOFT  # noqa: E402

PAGE = ROOT / "docs/gpu-sharing.md"
ROW = re.compile(r"\| ?(?P<word>[a-z ]*?) ?\| (?P<text>.*) \|")
ALSO = ("cards", "doubt", "scheduler", "never", "trap", "beside", "limits", "reserved")
NEEDED = ("recognised by", "asked for by", "unit", "isolation", "errors", "read back", "source")
DEGREE = {FULL: "yes", SOFT: "by a library or by turns", NONE: "no"}

HEAD = """# GPU sharing systems

Written by `make docs` from the modules of `workloads/sharing/`; edit those. Nothing here was measured on a GPU: the
facts are from the sources named in the last column of the second table. The tests run against a real API server; its
nodes are simulated, and the test takes the part of the vendors' schedulers.

## What you get

*Kept apart* shows whether other programs on the same card are kept from using your memory or your share of compute, and
whether a crash of theirs is kept from ending your program.

"""

OPERATORS = """
## How a node is recognised

A node is recognised by its labels, annotations and resources, never by its name, in the order below: a node with the
marks of several systems belongs to the first one. If the second system may not be used beside the first (whole cards
beside MIG instances may), the board shows an error and the node takes no workloads. A node with a GPU that no system
offers is listed and held back too, and so is a node with an unreadable amount; the reason is shown.

The product of its cards is read from the label `nvidia.com/gpu.product`, HAMi's annotation or a ResourceSlice; without
these, from the labels and instance types of GKE, AKS, EKS, OKE, ACK and VKE (`workloads/sharing/clouds.py`), or from the
operator's setting (option `products`: node name or `label=value` → product). Cards of an unknown product belong to no pool,
and their node is held back: two products must not be given out as the same. On GKE `gke-gpu-sharing-strategy`,
`gke-max-shared-clients-per-gpu` and `gke-gpu-partition-size` say how the cards are shared or cut.

A workload must not set `NVIDIA_*` (with them NVIDIA's container toolkit adds devices beyond the request),
`CUDA_VISIBLE_DEVICES`, `CUDA_DISABLE_CONTROL`, `LD_PRELOAD` and `LD_AUDIT`, nor the variables that its system reserves;
`NVIDIA_TF32_OVERRIDE` is allowed. If an image sets such variables itself, the pod removes them, except those for the card itself.

An operator can pin a node to a system (option `pins` of the cluster: node name or `label=value` → key), which is needed
for systems that leave no mark, and set the number of cards of a node that does not report it (option `cards`).

"""

TAIL = """
## Adding a system

One file in `workloads/sharing/` with `ABOUT`, `applies`, `discover`, `validate`, `manifest` and `read_back`
(`workloads/sharing/api.py` describes them), and one table of the same name in `tests/sharing/tables/`. The registry,
the request form, the API, this page and the tests find them.
"""


def table_of(module: System) -> dict[str, str]:
    """The rows of a module's docstring by their first column. Raises ValueError if a required one is missing."""
    rows: dict[str, str] = {}
    last = ""
    for line in (inspect.getdoc(module) or "").splitlines():
        if (found := ROW.fullmatch(line)) is None or found["text"].strip("-| ") == "":
            continue
        last = found["word"] or last
        rows[last] = f"{rows.get(last, '')} {found['text']}".strip()
    if missing := [word for word in NEEDED if word not in rows]:
        raise ValueError(f"{module.ABOUT.key}: its docstring says nothing of {', '.join(missing)}")
    return rows


def cell(text: str) -> str:
    return text.replace("|", "\\|").strip()


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines)


def for_users() -> str:
    rows = []
    for system in SYSTEMS.values():
        about = system.ABOUT
        apart = f"memory: {DEGREE[about.memory]}; compute: {DEGREE[about.compute]}; crashes: {DEGREE[about.faults]}"
        peers = "yes" if about.peers else "no"
        cores = {"may": "if you like", "must": "yes"}.get(about.cores, "no")
        rows.append((f"**{about.title}**", about.gives, about.unit, cores, peers, apart, about.risks))
    head = (
        "system",
        "what you get",
        "unit",
        "share of compute to give",
        "distributed jobs",
        "kept apart",
        "what can go wrong",
    )
    return table(head, rows)


def for_operators() -> str:
    rows = []
    for system in SYSTEMS.values():
        said = table_of(system)
        more = [f"**{word}** {said[word]}" for word in ALSO if word in said]
        rows.append(
            (
                f"**{system.ABOUT.title}** `{system.ABOUT.key}`", said["recognised by"], said["asked for by"], said["unit"],
                said["isolation"], said["errors"], "<br>".join(more), said["read back"], said["source"],
            )
        )  # fmt: skip
    head = ("system", "recognised by", "asked for by", "unit", "isolation", "errors", "also", "read back", "source")
    return table(head, rows)


def page() -> str:
    return HEAD + for_users() + OPERATORS + for_operators() + TAIL


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(
            None if PAGE.read_text() == page() else "docs/gpu-sharing.md is not what the modules say: run `make docs`"
        )
    PAGE.write_text(page())
