#!/usr/bin/env python3
"""Data-parallel training in miniature: each rank learns from its own examples, and their gradients are averaged over
sockets after every step. Standard library only.

The ranks meet by the variables that torchrun's static rendezvous has (MASTER_ADDR, MASTER_PORT, RANK) and PORTAL_RANKS.
Rank 0 keeps the checkpoint; every rank leaves at a step that all agree on, so that all resume from the same one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

CHECKPOINT = Path("checkpoint.json")
TRUTH = [2.0, -3.0, 0.5, 1.25]  # what the model has to find
RATE = 0.05
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["PORTAL_RANKS"])
leaving = False


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} rank {RANK}: {text}", flush=True)


class Ring:
    """A star around rank 0: it receives every other rank's values and sends the same answer to all."""

    def __init__(self) -> None:
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if RANK == 0:
            with socket.create_server(("", address[1])) as door:
                self.peers = [door.accept()[0].makefile("rw") for _ in range(RANKS - 1)]
        else:
            self.peers = [self.reach(address).makefile("rw")]

    def reach(self, address: tuple[str, int]) -> socket.socket:
        for _ in range(600):
            try:
                return socket.create_connection(address, timeout=60)
            except OSError:
                time.sleep(0.1)  # the master may still be starting
        raise SystemExit(f"rank {RANK}: nobody answers at {address}")

    def together(self, own: dict[str, Any]) -> dict[str, Any]:
        """Each rank sends its gradient, loss and whether it has to stop; all receive the mean, and whether any has to
        stop."""
        if RANK:
            self.tell(own)
            return dict(json.loads(self.peers[0].readline()))
        values = [own, *(json.loads(peer.readline()) for peer in self.peers)]
        mean = [sum(column) / RANKS for column in zip(*(each["gradient"] for each in values), strict=True)]
        loss = sum(each["loss"] for each in values) / RANKS
        answer = {"gradient": mean, "loss": loss, "leave": any(each["leave"] for each in values)}
        self.tell(answer)
        return answer

    def tell(self, message: dict[str, Any]) -> None:
        for peer in self.peers:
            peer.write(json.dumps(message) + "\n")
            peer.flush()


def gradient(step: int, weights: list[float]) -> tuple[list[float], float]:
    """The gradient for this rank's 16 examples of the step, and their loss."""
    chance = random.Random(step * 1000 + RANK)
    slope, loss = [0.0] * len(TRUTH), 0.0
    for _ in range(16):
        inputs = [chance.gauss(0, 1) for _ in TRUTH]
        target = sum(w * x for w, x in zip(TRUTH, inputs, strict=True)) + chance.gauss(0, 0.1)
        error = sum(w * x for w, x in zip(weights, inputs, strict=True)) - target
        loss += error * error / 16
        slope = [s + error * x / 16 for s, x in zip(slope, inputs, strict=True)]
    return slope, loss


def load() -> tuple[int, list[float]]:
    if not CHECKPOINT.exists():
        return 0, [0.0] * len(TRUTH)
    state = json.loads(CHECKPOINT.read_text())
    return state["step"], state["weights"]


def save(step: int, weights: list[float]) -> None:
    if RANK:
        return
    partial = CHECKPOINT.with_suffix(".partial")
    partial.write_text(json.dumps({"step": step, "weights": weights}))
    partial.replace(CHECKPOINT)


def leave(*_: object) -> None:
    global leaving
    leaving = True  # at the end of this step, with all the others


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=600)
    options.add_argument("--step-seconds", type=float, default=0.5)
    options.add_argument("--fail-at", type=int, default=None, help="a step at which the last rank breaks")
    args = options.parse_args()
    signal.signal(signal.SIGTERM, leave)
    step, weights = load()
    cards = os.environ.get("NVIDIA_VISIBLE_DEVICES", "none")
    say(f"{RANKS} ranks, my cards {cards} (declared: nothing here uses CUDA), beginning at step {step}")
    ring = Ring()
    say("all ranks have met")
    while step < args.steps:
        if step == args.fail_at and RANK == RANKS - 1:
            say(f"step {step}: loss is not a number, giving up")
            return 3
        slope, loss = gradient(step, weights)
        agreed = ring.together({"gradient": slope, "loss": loss, "leave": leaving})
        weights = [w - RATE * s for w, s in zip(weights, agreed["gradient"], strict=True)]
        step += 1
        if step % 10 == 0 or agreed["leave"]:
            save(step, weights)
            say(f"step {step}/{args.steps} mean loss {agreed['loss']:.5f}")
        if agreed["leave"]:
            say("stop requested: ending with the others")
            return 143
        time.sleep(args.step_seconds)
    say(f"done: weights {', '.join(f'{w:.3f}' for w in weights)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
