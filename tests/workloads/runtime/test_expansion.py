"""Commands and variables arrive byte for byte; only the portal's own names are expanded, where a preset uses them."""

import dataclasses
import json
import shutil
import subprocess
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.models import Pool
from tests.workloads import embedded_bed
from tests.workloads.kubernetes.test_manifests import spec
from workloads.embedded.command import plan
from workloads.kubernetes import manifests
from workloads.kubernetes.manifests import Options
from workloads.models import Image, Preset, Workload
from workloads.requests import exports
from workloads.requests.request import WorkloadRequest
from workloads.runtime.expansion import escaped, for_kubernetes, for_process

DOLLARS = st.text(st.sampled_from("$()AB_ \\'\"\n中{}"), max_size=12)
ANY = st.one_of(DOLLARS, st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20))


def kubernetes_expand(text: str, variables: dict[str, str]) -> str:
    """The kubelet's algorithm: k8s.io/kubernetes, third_party/forked/golang/expansion/expand.go, line by line."""
    out, cursor, checkpoint = "", 0, 0
    while cursor < len(text):
        if text[cursor] == "$" and cursor + 1 < len(text):
            out += text[checkpoint:cursor]
            read, is_variable, advance = _read(text[cursor + 1 :])
            out += variables.get(read, f"$({read})") if is_variable else read
            cursor += advance
            checkpoint = cursor + 1
        cursor += 1
    return out + text[checkpoint:]


def _read(text: str) -> tuple[str, bool, int]:
    if text[0] == "$":
        return text[0], False, 1
    if text[0] == "(":
        end = text.find(")", 1)
        return (text[1:end], True, end + 1) if end > 0 else ("$(", False, 1)
    return "$" + text[0], False, 1


def test_reimplemented_kubernetes_expansion_passes_its_original_tests() -> None:
    known = {"VAR_A": "A", "VAR_B": "B", "VAR_EMPTY": ""}
    # from k8s.io/kubernetes, third_party/forked/golang/expansion/expand_test.go
    table = {
        "$(VAR_A)": "A", "___$(VAR_B)___": "___B___", "$(VAR_A)-1": "A-1", "f000-$$VAR_A": "f000-$VAR_A",
        "$$$$(VAR_B)": "$$(VAR_B)", "$$$$$$(VAR_A)": "$$$(VAR_A)", "foo\\$(VAR_A)bar": "foo\\Abar",
        "foo$$(VAR_A)bar": "foo$(VAR_A)bar", "$(MISS)": "$(MISS)", "$VAR_A": "$VAR_A", "$": "$", "$$": "$",
        "$$$(VAR_A)": "$A", "$(": "$(", "$(VAR_A)$(": "A$(", "$(VAR_B)_$(VAR_A": "B_$(VAR_A",
    }  # fmt: skip
    assert {text: kubernetes_expand(text, known) for text in table} == table


@settings(max_examples=500)
@given(st.lists(ANY, min_size=1, max_size=4), st.dictionaries(st.sampled_from("ABC"), ANY))
def test_every_argument_and_value_arrives_unchanged_on_both_kinds_of_cluster(
    words: list[str], variables: dict[str, str]
) -> None:
    run_spec = spec(command=tuple(words), env=variables)
    rendered = yaml.safe_load(yaml.safe_dump(manifests.pod(run_spec, Options())))["spec"]["containers"][0]
    expanded: dict[str, str] = {}
    for entry in rendered["env"]:
        expanded[entry["name"]] = kubernetes_expand(entry["value"], expanded)
    assert {name: expanded[name] for name in variables} == variables
    assert [kubernetes_expand(word, expanded) for word in rendered["command"]] == words
    assert for_process(words, frozenset(), expanded) == words


@settings(max_examples=300)
@given(st.lists(st.one_of(DOLLARS, st.sampled_from(["$(PORTAL_PORT)", "$(PORTAL_NONE)", "$"])), max_size=6))
def test_preset_arguments_expand_equally_on_both_kinds_of_cluster(pieces: list[str]) -> None:
    word, known = "".join(pieces), {"PORTAL_PORT": "8000", "A": "wrong", "PORTAL_A": "$(PORTAL_PORT)"}
    [rendered] = for_kubernetes([word], {0})
    [local] = for_process([word], {0}, known)
    assert (
        kubernetes_expand(rendered, known)
        == local
        == word.replace("$(PORTAL_PORT)", "8000").replace("$(PORTAL_A)", "$(PORTAL_PORT)")
    )


def test_gang_ranks_and_exported_manifests_do_not_expand_user_arguments() -> None:
    gang = dataclasses.replace(
        spec(), kind="distributed", pods=2, command=("sh", "-c", "echo $$ $(PORTAL_RANK)"), env={"A": "$(B)$$"}
    )
    template = manifests.job(gang, Options())["spec"]["template"]["spec"]["containers"][0]
    assert kubernetes_expand(template["command"][2], {"PORTAL_RANK": "9"}) == "echo $$ $(PORTAL_RANK)"
    export_request = exports.Asked(
        name="x", template="torch", pods=2, cards=1, image="i", command=("echo", "$(A)"), env={"A": "$$(B)"}
    )
    for kind in exports.fitting("torch"):
        text = json.dumps(exports.export(kind, export_request))
        assert json.dumps(escaped("$(A)")) in text
        assert json.dumps(escaped("$$(B)")) in text


def test_embedded_cluster_passes_arguments_and_variables_unchanged(tmp_path: Any) -> None:
    words = ("python", "-c", "import sys, os; print(sys.argv[1:], os.environ['A'])", "$$", "$(HOME)", "$(PORTAL_USER)")
    run_spec = embedded_bed.spec(command=words, env={"A": "$(B) $$"})
    planned = plan(
        run_spec, tmp_path, lambda name: tmp_path, embedded_bed.NODES, {embedded_bed.IMAGE: shutil.which("python3")}
    )
    rank = planned.rank(0)
    out = subprocess.run(rank["argv"], env=rank["env"], capture_output=True, text=True, check=True)
    assert out.stdout == "['$$', '$(HOME)', '$(PORTAL_USER)'] $(B) $$\n"


def test_copied_request_expands_only_the_arguments_that_came_from_the_preset() -> None:
    preset = Preset(slug="serve", command=["serve", "--port=$(PORTAL_PORT)", "--note", "$$ $(date)"])
    words = ("serve", "--port=$(PORTAL_PORT)", "--also=$(PORTAL_PORT)", "$$ $(date)")
    request = WorkloadRequest(kind="service", name="s", pool=Pool(), image=Image(), preset=preset, command=words)
    assert request.own_words == {1}
    before = Workload(command=list(words), own_words=sorted(request.own_words))
    assert dataclasses.replace(request, preset=None, rerun_of=before).own_words == {1}
    assert dataclasses.replace(request, preset=None).own_words == frozenset()
