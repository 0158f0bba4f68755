"""`python -m tests.hostile.fuzz --cases N --seed S [--target NAME]`: hostile input for every reader of foreign bytes.

Each target gets its share of the cases. Findings are printed, and their inputs written below tests/hostile/found/. Add
the smallest of them to the corpus by hand, with a sentence. Exit status 1 if there was one.
"""

import argparse
import random
import re
import sys
from pathlib import Path

from tests.hostile.engine import Finding, Tally, fuzz
from tests.hostile.targets import SHARES

FOUND = Path(__file__).parent / "found"
MOST_SHOWN = 20


def main() -> int:
    parser = argparse.ArgumentParser(description="Hostile input for every reader of foreign bytes.")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None, help="a random one by default, which is printed")
    parser.add_argument("--target", choices=sorted(SHARES), action="append", help="only this target; may be repeated")
    parser.add_argument("--seconds", type=float, default=None, help="stop each target after this time")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    names = options.target or list(SHARES)
    total = sum(SHARES[name] for name in names)
    print(f"seed {seed}", flush=True)
    found = 0
    for name in names:
        tally = fuzz(name, max(1, options.cases * SHARES[name] // total), seed, seconds=options.seconds)
        print(report(name, tally), flush=True)
        shown: set[str] = set()
        for finding in sorted(tally.findings, key=lambda finding: len(finding.data)):
            kind = re.sub("[0-9]+", "#", finding.what)
            if kind not in shown and len(shown) < MOST_SHOWN:  # the smallest input of each kind is enough
                shown.add(kind)
                print(f"  {keep(finding)}: case {finding.case}: {finding.what}", flush=True)
        found += len(tally.findings)
    return 1 if found else 0


def report(name: str, tally: Tally) -> str:
    rate = tally.cases / tally.seconds if tally.seconds else 0
    outcomes = ", ".join(f"{code} {count}" for code, count in tally.outcomes.most_common())
    slowest_ms = tally.slowest_seconds * 1000
    return (
        f"{name}: {tally.cases} cases in {tally.seconds:.1f} s ({rate:.0f}/s), slowest {slowest_ms:.0f} ms, "
        f"most memory {tally.peak_bytes >> 20} MiB: {outcomes}"
    )


def keep(finding: Finding) -> Path:
    FOUND.mkdir(exist_ok=True)
    path = FOUND / f"{finding.target}-{finding.seed}-{finding.case}.bin"
    path.write_bytes(finding.data)
    return path


if __name__ == "__main__":
    sys.exit(main())
