"""The attacks of abuse.py, in a separate process of low priority, each at a fixed rate and with bounded numbers.

usage: python benchmarks/abuse_attacks.py      (a line of JSON for the targets, then one per attack)

Attackers use other loopback addresses than the honest clients, as strangers would. A `stranger` knows no token; a
`client` is a hostile client with a valid token.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from collections import Counter

import abuse_insiders
import abuse_strangers
from abuse_field import Field

ATTACKS = abuse_strangers.ATTACKS | abuse_insiders.ATTACKS


def main() -> None:
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(16_384, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    at = Field(**json.loads(sys.stdin.readline()))
    abuse_insiders.prepare()
    print(json.dumps([[one.name, one.who, one.targets] for one in ATTACKS.values()]), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        at.counts, at.until = Counter(), time.monotonic() + order["seconds"]
        asyncio.run(ATTACKS[order["attack"]].run(at))  # type: ignore[arg-type]
        print(json.dumps(at.counts), flush=True)


if __name__ == "__main__":
    main()
