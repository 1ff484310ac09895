#!/usr/bin/env python3
"""A short job with a result: counts primes, prints its progress, writes result.json. Standard library only."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main() -> int:
    limit = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    begun, sieve = time.monotonic(), bytearray([1]) * (limit + 1)
    sieve[:2] = b"\0\0"
    for number in range(2, int(limit**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, limit + 1, number)))
            print(f"struck out the multiples of {number}", flush=True)
            time.sleep(0.1)
    result = {"limit": limit, "primes": sum(sieve), "seconds": round(time.monotonic() - begun, 2)}
    Path("result.json").write_text(json.dumps(result))
    print(f"{result['primes']} primes up to {limit}, in {result['seconds']} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
