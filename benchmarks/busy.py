"""Training with two threads beside another busy process: how long threads should spin before they sleep.

python -m benchmarks.busy [--spins 1000 10000 ...] [--rounds 5] [--seconds 2] [--out OUT.json] makes updates of Deep
Sets on 3-Push, batch 256, in processes that take turns, each with its own GOMP_SPINCOUNT (`default`: torch's own),
alone and beside a process that only counts. It prints the medians over the rounds as a table, then one JSON line.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from efmdp.cli import SPINS
from efmdp.runs import versions

THREADS = 2
UPDATES = """
import sys, tempfile, time
from dataclasses import replace
from pathlib import Path
from efmdp.process import tuned_process
from efmdp.recipes import fast, make_network
from efmdp.runs import Run
from efmdp.train import Trainer

threads, seconds = int(sys.argv[1]), float(sys.argv[2])
config = replace(fast("3-Push", make_network("deep-set", 3), 0, curriculum=False), updates_per_round=2, threads=threads)
with tuned_process(threads), tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(config, Run(Path(folder)), "cpu")
    trainer.collect()
    trainer.learn()
    before, began = trainer.agent.updates, time.perf_counter()
    while time.perf_counter() - began < seconds:
        trainer.learn()
    print((trainer.agent.updates - before) / (time.perf_counter() - began))
"""
BUSY = "while True: pass"


def updates_per_second(spins: str, busy: bool, seconds: float) -> float:
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    if spins != "default":
        environment["GOMP_SPINCOUNT"] = spins
    # A session of its own: the scheduler shares cores between sessions, whatever their niceness.
    other = subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True) if busy else None
    try:
        command = [sys.executable, "-c", UPDATES, str(THREADS), str(seconds)]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return float(done.stdout)
    finally:
        if other is not None:
            other.kill()
            other.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spins", nargs="+", default=["default", "100000", "30000", "10000", "3000", "0"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    args = parser.parse_args()
    cases = [(spins, busy) for spins in args.spins for busy in (False, True)]
    rates: dict[tuple[str, bool], list[float]] = {case: [] for case in cases}
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("measuring", total=args.rounds * len(cases))
        for _ in range(args.rounds):
            for case in cases:
                rates[case].append(updates_per_second(*case, args.seconds))
                progress.advance(bar)
    table = Table("spins", "alone", "beside another", title=f"updates/s, {THREADS} threads, {os.cpu_count()} CPUs")
    for spins in args.spins:
        shown = f"{spins} (efmdp's)" if spins == SPINS else spins
        table.add_row(shown, *(f"{median(rates[spins, busy]):.0f}" for busy in (False, True)))
    Console().print(table)
    measured = {spins: {"alone": rates[spins, False], "busy": rates[spins, True]} for spins in args.spins}
    line = json.dumps({"benchmark": "busy", "updates_per_second": measured, "versions": versions()})
    print(line)
    if args.out is not None:
        args.out.write_text(line + "\n")


if __name__ == "__main__":
    main()
