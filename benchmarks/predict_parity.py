"""The trainer's scores against served scores, over 100,000 samples of every format through every protocol: the largest
difference for each pair. The same cases as tests/e2e/test_parity.py."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import measure

sys.path.insert(0, str(measure.ROOT))

from tests.e2e.parity_cases import FORMATS, make_case
from tests.e2e.parity_protocols import PROTOCOLS, difference
from tests.e2e.parity_server import serve


def main() -> None:
    arguments = measure.parse_arguments("offline scores against served ones")
    rows = 1000 if arguments.quick else 100_000
    worst: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="parity-") as name:
        folder = Path(name)
        for format in FORMATS:
            case = make_case(folder, str(folder / "repo"), format, rows)
            with serve(folder, str(folder / "repo"), [case.name]) as servers:
                for protocol, formats in PROTOCOLS.items():
                    if format in formats:
                        got, count = difference(case, servers, protocol)
                        worst[f"{format}_{protocol.__name__}"] = got
                        print(f"{format!s:>8} {protocol.__name__:>16}: {got:.2e} over {count:,} samples", flush=True)
    measure.print_result({"max_difference": max(worst.values()), "pairs": len(worst), "samples": rows})


if __name__ == "__main__":
    main()
