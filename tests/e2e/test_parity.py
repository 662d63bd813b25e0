"""What is served is what was trained: every format through every protocol gives the trainer's own scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticctr.data.schema import Format
from tests.e2e.parity_cases import FORMATS, Case, make_case
from tests.e2e.parity_protocols import PROTOCOLS, Scores, Servers, difference
from tests.e2e.parity_server import serve

TOLERANCE = 1e-6
ROWS = 300
PAIRS = [(format, protocol) for protocol, formats in PROTOCOLS.items() for format in formats]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[Format, Case], Servers]]:
    folder = tmp_path_factory.mktemp("parity")
    repo = str(folder / "repo")
    cases = {format: make_case(folder, repo, format, ROWS) for format in FORMATS}
    with serve(folder, repo, [str(format) for format in FORMATS]) as servers:
        yield cases, servers


@pytest.mark.parametrize(("format", "protocol"), PAIRS, ids=[f"{f}-{p.__name__}" for f, p in PAIRS])
def test_served_is_trained(
    served: tuple[dict[Format, Case], Servers], format: Format, protocol: Callable[[Case, Servers], Scores]
) -> None:
    cases, servers = served
    case = cases[format]
    assert case.scores.std() > 0.05  # equal scores would prove nothing
    assert difference(case, servers, protocol) <= TOLERANCE


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_served_is_trained_over_100_000_samples(tmp_path: Path) -> None:
    for format in FORMATS:
        case = make_case(tmp_path, str(tmp_path / "repo"), format, 100_000)
        with serve(tmp_path, str(tmp_path / "repo"), [case.name]) as servers:
            for protocol, formats in PROTOCOLS.items():
                if format in formats:
                    assert difference(case, servers, protocol) <= TOLERANCE, (format, protocol.__name__)
