"""Runs all benchmarks, or those named: `python -m bench submit_api plan_pass`. Each prints its figures beside a baseline."""

import importlib
import sys
from pathlib import Path

NAMES = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_"))

wanted = sys.argv[1:] or NAMES
if unknown := [name for name in wanted if name not in NAMES]:
    sys.exit(
        f"there is no benchmark {unknown[0]}: {', '.join(NAMES)}. A part of one: python -m bench.{wanted[0]} --help"
    )
for name in wanted:
    print(f"\n== {name}", flush=True)
    importlib.import_module(f"bench.{name}").main()
