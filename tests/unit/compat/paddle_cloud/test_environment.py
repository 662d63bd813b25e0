"""Paddle's variables: what they assign, and which contradictions are refused."""

from __future__ import annotations

import pytest

from elasticctr.compat.paddle_cloud.environment import read_environment
from elasticctr.errors import ConfigError

# As set by Paddle's job for Kubernetes, one pod each.
PSERVER = {
    "TRAINING_ROLE": "PSERVER",
    "PADDLE_TRAINING_ROLE": "PSERVER",
    "PADDLE_TRAINERS_NUM": "2",
    "PADDLE_PSERVERS_NUM": "2",
    "PADDLE_PORT": "30236",
    "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1:30236,10.0.0.2:30236",
    "PADDLE_TRAINER_ENDPOINTS": "10.0.0.3:30236,10.0.0.4:30236",
    "POD_IP": "10.0.0.2",
    "PADDLE_CURRENT_IP": "10.0.0.2",
    "PADDLE_JOB_NAME": "fluid-ctr",
    "PADDLE_IS_LOCAL": "0",
    "TRAINER_PORTS_NUM": "20",
    "PADDLE_WITH_GLOO": "1",
}
TRAINER = {
    **PSERVER,
    "TRAINING_ROLE": "TRAINER",
    "PADDLE_TRAINING_ROLE": "TRAINER",
    "POD_IP": "10.0.0.4",
    "PADDLE_CURRENT_IP": "10.0.0.4",
    "PADDLE_TRAINER_ID": "1",
    "CPU_NUM": "2",
}


def test_nothing_is_assigned_without_a_role() -> None:
    assert read_environment({}) is None
    assert read_environment({**PSERVER, "TRAINING_ROLE": "", "PADDLE_TRAINING_ROLE": " "}) is None
    assert read_environment({**TRAINER, "PADDLE_IS_LOCAL": "1"}) is None


def test_a_pserver_finds_itself_in_the_list() -> None:
    assigned = read_environment(PSERVER)
    assert assigned is not None
    assert (assigned.name, assigned.endpoint, assigned.leads) == ("pserver-1", ("10.0.0.2", 30236), False)
    assert assigned.coordinator == "http://10.0.0.1:30336"
    assert (assigned.trainers, assigned.pservers) == (2, ("10.0.0.1:30236", "10.0.0.2:30236"))
    first = read_environment({**PSERVER, "POD_IP": "10.0.0.1", "PADDLE_CURRENT_IP": ""})
    assert first is not None and first.leads


def test_a_trainer_has_its_number_and_threads() -> None:
    assigned = read_environment(TRAINER)
    assert assigned is not None
    assert (assigned.name, assigned.threads, assigned.leads) == ("trainer-1", 2, False)
    assert assigned.trainer_endpoints == ("10.0.0.3:30236", "10.0.0.4:30236")


def test_hosts_and_a_port_instead_of_endpoints() -> None:
    given = {k: v for k, v in PSERVER.items() if k != "PADDLE_PSERVERS_IP_PORT_LIST"}
    assigned = read_environment({**given, "PADDLE_PSERVERS": "10.0.0.1,10.0.0.2"})
    assert assigned is not None and assigned.pservers == ("10.0.0.1:30236", "10.0.0.2:30236") and assigned.index == 1


def test_two_pservers_of_one_host_are_distinguished_by_port() -> None:
    given = {**PSERVER, "PADDLE_PSERVERS_IP_PORT_LIST": "127.0.0.1:4000,127.0.0.1:4001", "PADDLE_CURRENT_IP": ""}
    assigned = read_environment({**given, "POD_IP": "127.0.0.1", "PADDLE_PORT": "4001"})
    assert assigned is not None and assigned.index == 1
    with pytest.raises(ConfigError, match="set PADDLE_PORT to choose one"):
        read_environment({**given, "POD_IP": "127.0.0.1", "PADDLE_PORT": ""})
    assigned = read_environment({**given, "POD_IP": "", "PADDLE_CURRENT_ENDPOINT": "127.0.0.1:4000"})
    assert assigned is not None and assigned.index == 0


@pytest.mark.parametrize(
    ("given", "expected"),
    [("10.0.0.9:81", "http://10.0.0.9:81"), ("http://c:1", "http://c:1"), ("/mnt/runs/7", "/mnt/runs/7")],
)
def test_the_coordinator_can_be_elsewhere(given: str, expected: str) -> None:
    assigned = read_environment({**TRAINER, "ELASTICCTR_COORDINATOR": given})
    assert assigned is not None and assigned.coordinator == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"TRAINING_ROLE": "TRAINER"}, "TRAINING_ROLE is TRAINER but PADDLE_TRAINING_ROLE is PSERVER"),
        ({"TRAINING_ROLE": "MASTER", "PADDLE_TRAINING_ROLE": ""}, "it must be PSERVER or TRAINER"),
        ({"PADDLE_PSERVERS_NUM": "3"}, "PADDLE_PSERVERS_NUM is 3, but PADDLE_PSERVERS_IP_PORT_LIST has 2 entries"),
        ({"PADDLE_TRAINERS_NUM": "5"}, "PADDLE_TRAINERS_NUM is 5, but PADDLE_TRAINER_ENDPOINTS has 2 entries"),
        ({"PADDLE_TRAINERS_NUM": "two"}, "PADDLE_TRAINERS_NUM is 'two'; it must be a whole number"),
        ({"PADDLE_TRAINERS_NUM": "", "PADDLE_TRAINER_ENDPOINTS": ""}, "PADDLE_TRAINERS_NUM is not set"),
        ({"PADDLE_CURRENT_IP": "10.0.0.1"}, "POD_IP is 10.0.0.2 but PADDLE_CURRENT_IP is 10.0.0.1"),
        ({"POD_IP": "10.9.9.9", "PADDLE_CURRENT_IP": ""}, "10.9.9.9:30236, which is not in PADDLE_PSERVERS"),
        ({"POD_IP": "", "PADDLE_CURRENT_IP": ""}, "set POD_IP and PADDLE_PORT"),
        ({"PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1,10.0.0.2"}, "is not host:port"),
        ({"PADDLE_PSERVERS_IP_PORT_LIST": "a:1,a:1"}, "lists a pserver twice"),
        ({"PADDLE_PSERVERS_IP_PORT_LIST": ""}, "lists no pserver"),
        ({"PADDLE_PSERVERS_IP_PORT_LIST": "", "PADDLE_PSERVERS": "a,b", "PADDLE_PORT": ""}, "PADDLE_PORT is not set"),
        ({"PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.2:65500,b:1", "PADDLE_PORT": "65500"}, "coordinator's port would"),
        (
            {"PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.2:5,10.0.0.2:105", "PADDLE_PORT": "5"},
            "has the coordinator's 10.0.0.2:105",
        ),
        ({"ELASTICCTR_COORDINATOR": "nowhere"}, "ELASTICCTR_COORDINATOR: 'nowhere' is not host:port"),
        ({"CPU_NUM": "0"}, "CPU_NUM is '0'"),
    ],
)
def test_contradictions_are_refused(change: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_environment({**PSERVER, **change})
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"PADDLE_TRAINER_ID": "2"}, "PADDLE_TRAINER_ID is 2, but there are only 2 trainers"),
        ({"PADDLE_TRAINER_ID": "-1"}, "PADDLE_TRAINER_ID is '-1'"),
        ({"PADDLE_TRAINER_ID": ""}, "PADDLE_TRAINER_ID is not set"),
        ({"PADDLE_CURRENT_ENDPOINT": "10.0.0.3:30236"}, "whose endpoint is 10.0.0.4:30236"),
    ],
)
def test_contradictions_of_a_trainer_are_refused(change: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_environment({**TRAINER, **change})
    assert words in str(raised.value)
