"""`python -m tests.architecture.compose docker-compose.yml`: checks a compose file by the Compose Specification's schema.

data/compose-spec.json is schema/compose-spec.json of github.com/compose-spec/compose-spec, commit 170098ba, Apache-2.0.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import jsonschema
import yaml

SCHEMA = Path(__file__).parent / "data" / "compose-spec.json"
VARIABLE = re.compile(r"\$\{([A-Z_]+)(?::([-?])([^}]*))?\}")


def load(path: Path) -> dict[str, Any]:
    """Merge keys and variables resolved, as `docker compose config` does (a required variable gets a stand-in)."""
    text = VARIABLE.sub(lambda match: (match[3] or "") if match[2] == "-" else "https://example.org", path.read_text())
    return dict(yaml.safe_load(text))


def faults(path: Path) -> list[str]:
    compose = load(path)
    schema = json.loads(SCHEMA.read_text())
    validator = jsonschema.Draft7Validator(schema)
    problems = [f"{'/'.join(map(str, error.path))}: {error.message}" for error in validator.iter_errors(compose)]
    services = compose["services"]
    for name, service in services.items():
        problems += [f"{name}: no such secret {s}" for s in service.get("secrets", []) if s not in compose["secrets"]]
        problems += [f"{name}: depends on unknown {d}" for d in service.get("depends_on", {}) if d not in services]
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if not source.startswith((".", "/")) and source not in compose["volumes"]:
                problems.append(f"{name}: no such volume {source}")
        if "healthcheck" not in service and name != "migrate":
            problems.append(f"{name}: has no health check")
    return problems


if __name__ == "__main__":
    bad = faults(Path(sys.argv[1]))
    print("\n".join(bad) or "valid")
    sys.exit(bool(bad))
