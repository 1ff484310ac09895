#!/usr/bin/env python3
"""A training run in miniature: stochastic gradient descent on a small problem, with checkpoints. Standard library only.

It does what every long job on borrowed cards should: it resumes from its checkpoint, saves when notice is given, saves
again on SIGTERM, and leaves a result behind. The loss is real; there is no GPU in it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

CHECKPOINT = Path("checkpoint.json")
TRUTH = [2.0, -3.0, 0.5, 1.25]  # what the model has to find
RATE = 0.01


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def save(step: int, weights: list[float]) -> None:
    """Writes the checkpoint completely or not at all: after a kill while writing, the old one is still there."""
    partial = CHECKPOINT.with_suffix(".partial")
    partial.write_text(json.dumps({"step": step, "weights": weights}))
    partial.replace(CHECKPOINT)


def load() -> tuple[int, list[float]]:
    if not CHECKPOINT.exists():
        return 0, [0.0] * len(TRUTH)
    state = json.loads(CHECKPOINT.read_text())
    return state["step"], state["weights"]


def train_one(step: int, weights: list[float]) -> float:
    """One batch of 16 examples; the same step always sees the same examples. Changes `weights`, returns the loss."""
    chance = random.Random(step)
    loss = 0.0
    for _ in range(16):
        inputs = [chance.gauss(0, 1) for _ in TRUTH]
        target = sum(w * x for w, x in zip(TRUTH, inputs, strict=True)) + chance.gauss(0, 0.1)
        error = sum(w * x for w, x in zip(weights, inputs, strict=True)) - target
        loss += error * error / 16
        for index, x in enumerate(inputs):
            weights[index] -= RATE * error * x
    return loss


def notice() -> str:
    """The time at which the cards will be reclaimed, or ""."""
    path = os.environ.get("PORTAL_RECLAIM_AT_FILE", "")
    try:
        return Path(path).read_text().strip() if path else ""
    except OSError:
        return ""


def on_cards() -> str:
    """ " on card 7" or " on cards 4, 5"; "" if it has a part of a card, without an index."""
    cards = os.environ.get("NVIDIA_VISIBLE_DEVICES", "")
    if not all(card.isdigit() for card in cards.split(",")):
        return ""
    return f" on {'cards' if ',' in cards else 'card'} {cards.replace(',', ', ')}"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=600)
    options.add_argument("--step-seconds", type=float, default=1.0)
    options.add_argument("--every", type=int, default=10, help="steps between checkpoints")
    options.add_argument("--fail-at", type=int, default=None, help="a step at which the run breaks")
    options.add_argument("--leave-early", action="store_true", help="go at once when notice is given")
    args = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds through the `finally` below

    step, weights = load()
    say(f"attempt {os.environ.get('PORTAL_ATTEMPT', '?')}{on_cards()} (declared: nothing here uses CUDA)")
    say(f"resuming at step {step}" if step else "no checkpoint: starting at step 0")
    reclaim_at, loss = "", float("nan")
    try:
        while step < args.steps:
            if step == args.fail_at:
                say(f"step {step}: loss is not a number, giving up")
                return 3
            loss = train_one(step, weights)
            step += 1
            if step % args.every == 0:
                save(step, weights)
                say(f"step {step}/{args.steps} loss {loss:.5f}")
            if (now := notice()) != reclaim_at:
                reclaim_at = now
                say(
                    f"notice: the cards go back at {reclaim_at}, saving" if reclaim_at else "notice withdrawn: going on"
                )
                save(step, weights)
                if reclaim_at and args.leave_early:
                    Path(os.environ["PORTAL_READY_FILE"]).touch()
            time.sleep(args.step_seconds)
    finally:
        save(step, weights)
        say(f"saved at step {step}")
    Path("result.json").write_text(json.dumps({"steps": step, "loss": loss, "weights": weights}, indent=1))
    say(f"done: loss {loss:.5f}, see result.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
