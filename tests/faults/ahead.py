"""`python -m tests.faults.ahead 3600 manage.py watch`: runs that program as on a machine whose clock is an hour ahead."""

from __future__ import annotations

import datetime as dt
import runpy
import sys

import time_machine


def main(seconds: int, program: list[str]) -> None:
    shifted = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)
    time_machine.travel(shifted, tick=True).start()
    module = program[0] == "-m"
    sys.argv = program[1:] if module else program
    if module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, ".")
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
