"""Unit tests start no process (those that need one are in tests/process, or here with their reason), and a class name
appears once in the tree."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

UNIT = Path(__file__).parent
SOURCE = UNIT.parents[1] / "src"
MODULES = ("subprocess", "multiprocessing", "tests.process")
CALLS = ("os.fork", "os.posix_spawn", "os.system", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell")

FRESH = "one test looks at sys.modules of a fresh interpreter"
DEAD = "one test needs the number of a process that is gone"
FULL_DISK = "one test limits the size of files, which holds for a whole process"
EXCEPTIONS = {
    "cube/agent/test_fetch.py": FRESH,
    "cube/test_client.py": "one test forks a client, which has to notice it",
    "models/test_registry.py": FRESH,
    "obs/test_environment.py": "makes a git repository",
    "ps/coordinator/test_background_publisher.py": "puts a fake in place of subprocess",
    "ps/coordinator/test_claim.py": DEAD,
    "ps/test_shape.py": FRESH,
    "serve/activation/test_served_version.py": FRESH,
    "serve/feedback/test_log.py": FULL_DISK,
    "table/test_snapshot.py": FULL_DISK,
    "versions/test_lease.py": DEAD,
}


def starts_processes(source: str) -> bool:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [name for name in CALLS if name == ast.unparse(node)]
        else:
            continue
        if any(f"{name}.".startswith(f"{start}.") for name in names for start in (*MODULES, *CALLS)):
            return True
    return False


def test_unit_tests_start_no_process() -> None:
    found = {
        path.relative_to(UNIT).as_posix() for path in UNIT.rglob("*.py") if starts_processes(path.read_text("utf-8"))
    }
    assert found - EXCEPTIONS.keys() == set(), "move what needs a process to tests/process, or list it with its reason"
    assert EXCEPTIONS.keys() - found == set(), "these start no process any more: take them off the list"


def test_every_way_to_start_a_process_is_seen() -> None:
    for line in (
        "import subprocess",
        "from multiprocessing import Pool",
        "from os import fork",
        "import os\nos.fork()",
    ):
        assert starts_processes(line), line
    assert starts_processes("from tests.process.cube.serving import ServerProcess")
    assert not starts_processes("import os\nfrom tests.unit.ps.conftest import World\nos.getpid()")


def defined_twice(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Class names that several of these modules define, with the modules."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(path)
    return {name: paths for name, paths in homes.items() if len(paths) > 1}


def test_a_class_name_is_defined_once() -> None:
    sources = {path.relative_to(SOURCE).as_posix(): path.read_text("utf-8") for path in SOURCE.rglob("*.py")}
    assert len(sources) > 100
    assert defined_twice(sources) == {}, "say what each of them is, in its name"


def test_a_class_name_that_is_defined_twice_is_seen() -> None:
    twice = {"cube.py": "class Client: ...", "serve.py": "class Client(Base):\n    x = 1", "net.py": "class Peer: ..."}
    assert defined_twice(twice) == {"Client": ["cube.py", "serve.py"]}
