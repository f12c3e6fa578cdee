"""Tests of the simulator: comparison with queueing theory, and properties that hold for every simulation."""

import dataclasses
import hashlib
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from receive_queue import charged_bytes
from simulated import CALLS, SERVER, SERVICE_NS, agrees, outputs, trace, waiting

from sipsched.errors import StableError
from sipsched.measure.simulator import T0_NS, ModelNumbers, Outputs, simulate
from sipsched.records.switch_log import parse_log
from sipsched.records.trace import HEADER, RECORD, Event


def sojourn(records: npt.NDArray[Any]) -> float:
    """Return the mean time from arrival to departure, in mean service times."""
    return float((records["t_dep"] - records["t_arr"]).mean()) / SERVICE_NS


def loss(records: npt.NDArray[Any]) -> float:
    """Return the share of messages that the full queue refused."""
    return float((records["event"] == Event.DROP).mean())


def erlang_c(servers: int, offered: float) -> float:
    """Return the probability that an arrival waits in M/M/c."""
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = offered * blocked / (n + offered * blocked)
    return blocked / (1 - offered / servers * (1 - blocked))


def full_probability(servers: int, places: int, offered: float) -> float:
    """Return the probability that all places of M/M/c/K are occupied."""
    states = [
        offered**n / math.factorial(min(n, servers)) / servers ** max(0, n - servers)
        for n in range(places + 1)
    ]
    return states[-1] / sum(states)


@pytest.mark.parametrize("load", [0.5, 0.8])
@pytest.mark.parametrize(
    ("law", "scv"), [("exponential", 1.0), ("constant", 0.0), ("lognormal", 2.0)]
)
def test_waits_for_one_server_follow_pollaczek_and_khinchine(
    load: float, law: str, scv: float, tmp_path: Path
) -> None:
    changes = {"rate_cps": load * 1e9 / SERVICE_NS, "service_law": law, "service_scv": [scv] * 7}
    agrees(load / (1 - load) * (1 + scv) / 2, changes, waiting, tmp_path)


RECEIVE_NS = 40_000
ELSEWHERE: ModelNumbers = {
    "service_law": "constant",
    "receive_cpus": 1,
    "receive_first_cpu": 1,
    "receive_ns": RECEIVE_NS,
}
"""Parameters of one worker on CPU 0, while CPU 1 only receives."""


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_a_softirq_on_a_cpu_without_workers_takes_no_time_from_the_worker(
    load: float, tmp_path: Path
) -> None:
    """Expect the wait of M/D/1 with the service time alone, plus the time of the softirq.

    The receiving CPU is a faster server with a constant time in front of the worker. Such a server adds its own time,
    but no waiting (Avi-Itzhak 1965).
    """
    changes = {**ELSEWHERE, "rate_cps": load * 1e9 / SERVICE_NS}
    agrees(load / (1 - load) / 2 + RECEIVE_NS / SERVICE_NS, changes, waiting, tmp_path)


@pytest.mark.parametrize("cores", [1, 2])
def test_only_the_chosen_cpu_receives(cores: int, tmp_path: Path) -> None:
    """Let CPU 1 receive. With one core, CPU 1 has no workers; with two cores, workers also use CPU 1."""
    changes = {**ELSEWHERE, "cores": cores, "workers": 2, "rate_cps": 9000.0, "calls": 1000}
    report, _ = trace({**SERVER, **changes}, tmp_path)
    assert [cpu.receive for cpu in report.cpus] == [0, 1000 * RECEIVE_NS]
    assert report.cpus[0].task > 0
    assert (report.cpus[1].task > 0) == (cores == 2)


@pytest.mark.parametrize("rules", ["eevdf", "cfs"])
@pytest.mark.parametrize("policy", ["other", "fifo"])
@pytest.mark.parametrize("servers", [2, 4])
def test_waits_for_several_servers_follow_erlang(
    servers: int, policy: str, rules: str, tmp_path: Path
) -> None:
    offered = 0.8 * servers
    changes = {
        "cores": servers,
        "workers": servers,
        "rules": rules,
        "policy": policy,
        "rate_cps": offered * 1e9 / SERVICE_NS,
    }
    agrees(erlang_c(servers, offered) / (servers - offered), changes, waiting, tmp_path)


@pytest.mark.parametrize(("servers", "places", "offered"), [(1, 5, 0.9), (2, 10, 1.8), (4, 6, 5.0)])
def test_refusals_of_a_full_queue_follow_theory(
    servers: int, places: int, offered: float, tmp_path: Path
) -> None:
    changes = {
        "cores": servers,
        "workers": servers,
        "rate_cps": offered * 1e9 / SERVICE_NS,
        "receive_buffer_bytes": places - servers,
    }
    agrees(full_probability(servers, places, offered), changes, loss, tmp_path)


@pytest.mark.parametrize("rules", ["eevdf", "cfs"])
@pytest.mark.parametrize("policy", ["other", "batch", "rr"])
def test_the_mean_sojourn_does_not_depend_on_the_order_of_service(
    rules: str, policy: str, tmp_path: Path
) -> None:
    """Use exponential service times, with which the mean sojourn is equal for every order of service (Kleinrock)."""
    changes = {
        "workers": 8,
        "rate_cps": 0.8 * 1e9 / SERVICE_NS,
        "rules": rules,
        "policy": policy,
        "tick_ns": 50_000,
        "slice_ns": 100_000,
        "latency_ns": 800_000,
        "min_granularity_ns": 100_000,
        "wakeup_granularity_ns": 0,
    }
    agrees(1 / (1 - 0.8), changes, sojourn, tmp_path)


VARIANTS: dict[str, ModelNumbers] = {
    "eevdf": {},
    "cfs": {"rules": "cfs", "release": "5.10"},
    "herd": {"wake_all": True},
    "fifo": {"policy": "fifo"},
    "rr": {"policy": "rr"},
    "batch": {"policy": "batch", "rules": "cfs"},
    "no placement": {"placement": False},
    "no lock": {"lock_share": 0.0},
    "all locked": {"lock_share": 1.0, "spin_ns": 1, "yield_ns": 1},
    "no stalls": {"stall_ns": 0},
    "overloaded": {"rate_cps": 12_000.0},
    "overloaded, one core": {"cores": 1},
    "drawn hold times": {"hold_exponential": True},
    "no softirq": {"receive_cpus": 0},
    "softirqs on other CPUs": {"receive_cpus": 2, "receive_first_cpu": 3},
    "competitors": {
        "competitors": 3,
        "competitor_period_ns": [20_000_000, 0, 5_000_000, *[0] * 13],
        "competitor_work_ns": [3_000_000, 0, 100_000, *[0] * 13],
        "competitor_policy": ["other", "idle", *["other"] * 14],
        "competitor_nice": [0, 0, 5, *[0] * 13],
        "competitor_first_cpu": [0, 3, 1, *[0] * 13],
        "competitor_cpus": [4, 1, 2, *[1] * 13],
        "burst_every_ns": 5_000_000,
        "burst_ns": 300_000,
    },
    "logger": {"rules": "cfs", "logger_ns": 10_000, "logger_queue": 2},
    "logger on its own CPU": {
        **{"rules": "cfs", "release": "5.10", "cores": 2},
        **{"logger_ns": 40_000, "logger_queue": 2, "logger_apart": True},
    },
    "socket lock": {"socket_lock_ns": 3_000, "transfer_ns": 8_000},
    "refills that grow": {"refill_doubling_ns": 10_000},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_messages_and_times_add_up(variant: str, tmp_path: Path) -> None:
    numbers = {**CALLS, **VARIANTS[variant]}
    report, records = trace(numbers, tmp_path)
    served = records[records["event"] == Event.MESSAGE]
    assert report.arrived == len(records) == report.served + report.refused
    assert report.refused == np.count_nonzero(records["event"] == Event.DROP)
    assert sum(worker.messages for worker in report.workers) == report.served == len(served)
    for cpu in report.cpus:
        assert sum(dataclasses.astuple(cpu)) == report.t_end_ns
    tasks = (*report.workers, *report.others)
    assert sum(cpu.task for cpu in report.cpus) == sum(task.ran_ns for task in tasks)
    stamps = ("t_arr", "t_stack", "t_sockq", "t_sip_in", "t_sip_out", "t_dep")
    for earlier, later in itertools.pairwise(stamps):
        assert np.all(served[earlier] <= served[later]), (earlier, later)
    assert np.all(served["t_sip_out"] - served["t_sip_in"] >= served["off_cpu_ns"])


def test_a_refused_message_ends_its_call_without_retransmissions(tmp_path: Path) -> None:
    numbers = {**CALLS, "retransmissions": False, "rate_cps": 12_000.0, "stall_ns": 0}
    report, records = trace(numbers, tmp_path)
    assert report.refused > 100
    # a dropped INVITE ends its call, and so does every other dropped message except a 180
    lost = records[(records["event"] == Event.DROP) & (records["kind"] == 1)]
    assert not np.isin(lost["call_id_hash"], records["call_id_hash"][records["kind"] > 1]).any()
    assert len(np.unique(records["call_id_hash"])) == CALLS["calls"]


def test_readers_free_memory_as_the_kernel_does(tmp_path: Path) -> None:
    changes = {
        "workers": 1,
        "rate_cps": 9000.0,
        "receive_buffer_bytes": 40_960,
        "truesize": [1280] * 7,
    }
    _, records = trace({**CALLS, **changes, "answered": False}, tmp_path)
    taken = records[records["event"] == Event.MESSAGE]
    assert (records["event"] == Event.DROP).sum() > 100
    assert (charged_bytes(taken, 40_960) == taken["rmem"]).all()


@pytest.mark.parametrize("rules", ["eevdf", "cfs"])
def test_equal_seeds_give_equal_files(rules: str, tmp_path: Path) -> None:
    result = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        simulate({**CALLS, "rules": rules}, folder, outputs(folder))
        result.append([path.read_bytes() for path in sorted(folder.iterdir())])
    assert result[0] == result[1]
    other = tmp_path / "other"
    other.mkdir()
    simulate({**CALLS, "rules": rules, "seed": 2}, other, outputs(other))
    assert [path.read_bytes() for path in sorted(other.iterdir())] != result[0]


BEFORE = {
    "eevdf": "e0563d39d0d7d8896bfcb52fc3b5d73c539a35d54a58b2ec08bde7655fbdbb52",
    "cfs": "347096cbdc3fa93333edf2089928235290ce07613dbabdbf9ffff76998dd2ac9",
    "herd": "87819cb0a3a119f8240501ca23e4e78960f44872ad83267302b7debc8a5f0191",
    "overloaded": "191df511faaa674a61579511444dc0823fa200dfaebfba92a9c660eb09979168",
    "drawn hold times": "2728ff96db74124c3cf3366d1fb684ee4067b6e0dec6f46abd609b9b3df646e2",
    "compared": "af5d5c0d6272f4d7b2eb7971df4625917444a44440d57d5942268bbfb5651c06",
}
"""SHA-256 of all files of a simulation: report, trace, calls, report of the UAC, and log. A change would show here."""


@pytest.mark.parametrize("variant", BEFORE)
def test_the_files_of_known_simulations_are_unchanged(variant: str, tmp_path: Path) -> None:
    files = compared(tmp_path) if variant == "compared" else outputs(tmp_path)
    simulate({**CALLS, **VARIANTS.get(variant, {})}, tmp_path, files)
    written = [tmp_path / "report.json", files.trace, files.calls, files.uac]
    written += [files.log] if files.log else []
    content = b"".join(path.read_bytes() for path in written)
    assert hashlib.sha256(content).hexdigest() == BEFORE[variant]


MODES = ("policy = fifo", "policy = rr", "policy = batch", "nice = -10", "slice_ns = 100000")
WINDOW_NS = 20_000_000


def compared(folder: Path, sample_ns: int = 50_000_000, setattr_ns: int = 0) -> Outputs:
    """Write a plan of 30 windows in blocks of five, with five modes and the default in turn."""
    lines = [f"sample {sample_ns}", f"setattr {setattr_ns}", "mode 0 policy = other"]
    lines += [f"mode {number} {line}" for number, line in enumerate(MODES, start=1)]
    lines += [f"window {n * WINDOW_NS} {n * 5 % 6}" for n in range(30)]
    plan, blocks = folder / "plan.txt", folder / "blocks.txt"
    plan.write_text("\n".join([*lines, f"end {30 * WINDOW_NS}"]) + "\n")
    blocks.write_text("".join(f"{n // 5} {WINDOW_NS}\n" for n in range(30)))
    named = outputs(folder)
    return dataclasses.replace(named, plan=plan, blocks=blocks, log=folder / "log.json")


@pytest.mark.parametrize("setattr_ns", [0, 5_000])
@pytest.mark.parametrize("rules", ["eevdf", "cfs"])
def test_switches_of_the_mode_lose_no_message(rules: str, setattr_ns: int, tmp_path: Path) -> None:
    files = compared(tmp_path, setattr_ns=setattr_ns)
    report = simulate({**CALLS, "rules": rules}, tmp_path, files)
    assert report.arrived == report.served + report.refused
    for cpu in report.cpus:
        assert sum(dataclasses.astuple(cpu)) == report.t_end_ns
    assert files.log is not None
    log = parse_log(files.log.read_text(), "log")
    assert (log.ended, log.tasks, len(log.windows)) == ("plan", 8, 30)
    assert all(switch.good and switch.asked_ns == switch.began_ns for switch in log.windows)
    assert {window.done_ns - window.began_ns for window in log.windows} == {8 * setattr_ns}
    assert np.all(np.diff(np.diff([switch.asked_ns for switch in log.windows])) == 0)
    for column in dataclasses.astuple(log.samples):
        assert np.all(np.diff(column) >= 0)
    # the last sample precedes the last answers
    assert 0.9 * report.received < log.samples.datagrams[-1] <= report.received


def test_the_interval_of_samples_changes_nothing_else(tmp_path: Path) -> None:
    result = []
    for sample_ns in (50_000_000, 1_000_000):
        files = compared(tmp_path, sample_ns)
        simulate(CALLS, tmp_path, files)
        result.append((files.trace.read_bytes(), files.calls.read_bytes()))
    assert result[0] == result[1]


def test_repeated_calls_take_the_same_time(tmp_path: Path) -> None:
    """Repeat the calls of a block in each window: arrivals and service times must be equal in all windows."""
    numbers = {**CALLS, "retransmissions": False, "lock_share": 0.0, "stall_every_ns": 0}
    files = compared(tmp_path)
    simulate(numbers, tmp_path, files)
    records = np.frombuffer(files.trace.read_bytes(), RECORD, offset=HEADER.itemsize)
    invites = records[records["kind"] == 1]
    since = invites["t_arr"].astype("i8") - T0_NS - 20_000
    window = since // WINDOW_NS
    spent = (invites["t_sip_out"] - invites["t_sip_in"] - invites["off_cpu_ns"]).astype("i8")
    for first in range(0, 30, 5):
        order = [np.argsort(since[window == first + n]) for n in range(5)]
        works = [spent[window == first + n][order[n]] for n in range(5)]
        assert len({len(work) for work in works}) == 1
        for work in works[1:]:
            assert np.median(np.abs(work - works[0])) < 20_000
            assert np.corrcoef(work, works[0])[0, 1] > 0.8


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("mode 0 cores = 2", "line 1: unknown name"),
        ("mode 1 policy = fifo", "line 1: unknown name"),
        ("window 0 0", "line 1: unknown name"),
        ("mode 0 policy = deadline", "not an allowed value"),
        ("end 1", "expected windows"),
    ],
)
def test_a_wrong_plan_is_an_error(line: str, words: str, tmp_path: Path) -> None:
    files = compared(tmp_path)
    assert files.plan is not None
    files.plan.write_text(line + "\n")
    with pytest.raises(StableError, match=words):
        simulate(CALLS, tmp_path, files)


def test_the_service_time_of_a_message_does_not_depend_on_the_worker(tmp_path: Path) -> None:
    """Compare two schedulers, which choose different workers. A message must have the same service time in both."""
    work = {}
    for rules in ("eevdf", "cfs"):
        numbers = {**CALLS, "rules": rules, "lock_share": 0.0, "stall_ns": 0, "receive_cpus": 0}
        _, records = trace(numbers, tmp_path)
        keys = records["call_id_hash"] * 8 + records["kind"]
        spent = records["t_sip_out"] - records["t_sip_in"] - records["off_cpu_ns"]
        _, first = np.unique(keys, return_index=True)
        work[rules] = spent[first].astype("i8")
    # the remaining difference comes from context switches and the cold caches after them
    assert np.mean(work["eevdf"] == work["cfs"]) > 0.5
    assert np.median(np.abs(work["eevdf"] - work["cfs"])) < 10_000


COSTS: ModelNumbers = SERVER | {
    "calls": 3,
    "rate_cps": 1000.0,
    "constant_arrivals": True,
    "service_law": "constant",
    "receive_cpus": 1,
    "interrupt_ns": 11_000,
    "receive_ns": 7_000,
    "wake_ns": 3_000,
    "idle_exit_ns": 5_000,
    "switch_ns": 8_000,
    "copy_ns": 1_000,
    "refill_ns": 9_000,
    "send_ns": 2_000,
    "loop_ns": 4_000,
}
"""Parameters with three messages 1 ms apart, a service time of 100 µs on one CPU, and all other costs."""


@pytest.mark.parametrize(("workers", "cold"), [(1, [True, False, False]), (2, [True] * 3)])
def test_the_costs_of_a_message_on_an_idle_cpu(
    workers: int, cold: list[bool], tmp_path: Path
) -> None:
    report, records = trace({**COSTS, "workers": workers}, tmp_path)
    assert set(records["t_stack"] - records["t_arr"]) == {11_000 + 7_000}
    # the wait is the sum of the wake-up by the softirq, the exit from idle, and the context switch
    assert set(records["t_sockq"] - records["t_stack"]) == {3_000 + 5_000 + 8_000}
    # with two workers, the workers alternate, so each worker finds a cold cache
    served = [SERVICE_NS + 9_000 * each for each in cold]
    assert list(records["t_sip_out"] - records["t_sip_in"]) == served
    cpu = report.cpus[0]
    assert cpu.receive == 3 * (7_000 + 3_000)
    assert cpu.switch == 3 * (5_000 + 8_000)
    # no task is charged for a softirq on an idle CPU, or for the exit from idle
    each = 8_000 + 1_000 + 2_000 + 4_000
    assert sum(worker.charged_ns for worker in report.workers) == 3 * each + sum(served)


@pytest.mark.parametrize(
    ("changes", "others"),
    [
        ({"workers": 1}, [0, 0, 0, 0, 0, 0]),
        ({"workers": 2}, [0, 1, 1, 1, 1, 1]),
        ({"workers": 4}, [0, 1, 2, 3, 3, 3]),
        ({"workers": 4, "cores": 2, "placement": False}, [0, 0, 1, 1, 1, 1]),
    ],
    ids=["1 worker", "2 workers", "4 workers", "4 workers on 2 CPUs"],
)
def test_a_refill_grows_with_the_number_of_other_workers_on_the_cpu(
    changes: ModelNumbers, others: list[int], tmp_path: Path
) -> None:
    """Let idle workers serve messages in turn. Other workers of the CPU have displaced the data of each worker."""
    numbers = {**COSTS, **changes, "calls": 6, "refill_ns": 0, "refill_doubling_ns": 10_000}
    report, records = trace(numbers, tmp_path)
    served = [SERVICE_NS + round(10_000 * math.log2(1 + n)) for n in others]
    assert list(records["t_sip_out"] - records["t_sip_in"]) == served
    # the CPUs count the refills as time of the workers
    each = 1_000 + 2_000 + 4_000
    assert sum(cpu.task for cpu in report.cpus) == 6 * each + sum(served)


def test_a_worker_refills_its_caches_after_each_preemption_of_a_service(tmp_path: Path) -> None:
    """Let a SCHED_FIFO task preempt services. Each return of the worker costs a switch and a refill."""
    beside = competitor(60_000, 10_000, policy="fifo")
    numbers = {**COSTS, **beside, "calls": 50, "refill_ns": 0, "refill_doubling_ns": 5_000}
    _, records = trace(numbers, tmp_path)
    on_cpu = (records["t_sip_out"] - records["t_sip_in"] - records["off_cpu_ns"]).astype("i8")
    preemptions = records["switches"].astype("i8")
    assert preemptions.max() >= 2
    rest = on_cpu - preemptions * (8_000 + 5_000)
    # only the task ran before the service, or nothing ran
    assert set(rest[1:]) <= {SERVICE_NS, SERVICE_NS + 5_000}


@pytest.mark.parametrize("accounting", [False, True])
def test_an_interrupt_prolongs_a_service(accounting: bool, tmp_path: Path) -> None:
    """Offer three messages 50 µs apart, of which the last two arrive during the service of the first message."""
    numbers = {**COSTS, "rate_cps": 20_000.0, "irq_time_accounting": accounting}
    report, records = trace(numbers, tmp_path)
    # two softirqs prolong the first service and wake no worker; the cache is warm for the other two services
    assert list(records["t_sip_out"] - records["t_sip_in"]) == [
        SERVICE_NS + 9_000 + 2 * 7_000,
        SERVICE_NS,
        SERVICE_NS,
    ]
    busy = 3 * (SERVICE_NS + 1_000 + 2_000 + 4_000) + 9_000 + 8_000
    assert report.workers[0].charged_ns == busy + (0 if accounting else 2 * 7_000)


def test_one_interrupt_receives_all_messages_that_arrived(tmp_path: Path) -> None:
    """Offer three messages 5 µs apart. The interrupt comes after the third message, and receives all three."""
    _, records = trace({**COSTS, "rate_cps": 200_000.0}, tmp_path)
    first = records["t_arr"][0]
    # the interrupt takes 11 µs, then each message takes 7 µs, and the wake-up takes 3 µs
    assert list(records["t_stack"] - first) == [18_000, 18_000 + 3_000 + 7_000, 35_000]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cores_per_processor": 0}, "not an allowed value"),
        ({"cores": 0}, "not an allowed value"),
        ({"link_ns": -1}, "not an allowed value"),
        ({"rules": "bfs"}, "not an allowed value"),
        ({"service_ns": [1, 2]}, "not an allowed value"),
        ({"receive_cpus": 9}, "larger than the number of cores"),
        ({"receive_first_cpu": 256}, "larger than the number of CPUs: receive_first_cpu"),
        ({"sockets": 9}, "larger than the number of workers: sockets"),
        ({"sockets": 0}, "not an allowed value"),
        ({"peers": 0}, "not an allowed value"),
        ({"instances": 2}, "does not divide the number of sockets: instances"),
        ({"compared": 2}, "does not agree with workers, cores, sockets or instances: compared"),
        ({"sockets": 8, "instances": 3}, "does not divide the number of sockets: instances"),
        ({"fronts": 1025}, "not an allowed value"),
        ({"choice": "holder", "fronts": 1}, "expected one socket per worker and one front: choice"),
        (
            {"choice": "holder", "sockets": 8},
            "expected one socket per worker and one front: choice",
        ),
        ({"speed": 1}, "unknown name: speed"),
        ({"events_max": 1000}, "not at its end after events_max events"),
    ],
)
def test_a_wrong_number_of_a_model_is_an_error(
    changes: ModelNumbers, words: str, tmp_path: Path
) -> None:
    with pytest.raises(StableError, match=words):
        simulate({**CALLS, **changes}, tmp_path)


def test_a_missing_number_of_a_model_is_an_error(tmp_path: Path) -> None:
    numbers = {name: value for name, value in CALLS.items() if name != "tick_ns"}
    with pytest.raises(StableError, match="missing: tick_ns"):
        simulate(numbers, tmp_path)


def test_real_time_workers_stay_on_the_cpus_of_their_instance(tmp_path: Path) -> None:
    instances = {
        **dict.fromkeys(("compared", "sockets", "instances"), 2),
        "compared_workers": [2, 2, *[0] * 30],
        "compared_cores": [1, 4, *[0] * 30],
        "compared_buffer_bytes": [131_072, 131_072, *[0] * 30],
    }
    numbers = {**CALLS, **instances, "workers": 4, "policy": "fifo", "rate_cps": 1500.0}
    report, _ = trace(numbers, tmp_path)
    # All calls belong to the first instance, which has one CPU.
    assert sum(worker.messages for worker in report.workers[:2]) == report.served > 0
    assert [worker.migrations for worker in report.workers[:2]] == [0, 0]


def competitor(period_ns: int, work_ns: int, **changes: Any) -> dict[str, Any]:
    """Return parameters with one competitor on the first CPU. Further parameters replace the first number of a list."""
    rest = {"period_ns": 0, "work_ns": 0, "policy": "other", "nice": 0, "first_cpu": 0, "cpus": 1}
    first = rest | {"period_ns": period_ns, "work_ns": work_ns} | changes
    return {
        "competitors": 1,
        **{f"competitor_{name}": [first[name], *[rest[name]] * 15] for name in rest},
    }


ALWAYS = competitor(0, 0)


def test_a_competitor_on_another_cpu_changes_nothing(tmp_path: Path) -> None:
    numbers = {**SERVER, "cores": 2, "placement": False, "calls": 10_000}
    alone = trace(numbers, tmp_path)[1]
    other = {**ALWAYS, "competitor_first_cpu": [1, *[0] * 15]}
    report, beside = trace({**numbers, **other}, tmp_path)
    assert beside.tobytes() == alone.tobytes()
    assert report.others[0].ran_ns == report.t_end_ns


@pytest.mark.parametrize(
    "changes",
    [
        {**competitor(0, 0, policy="idle"), "rules": "cfs"},
        {**ALWAYS, "policy": "fifo", "rules": "cfs"},
        {**ALWAYS, "policy": "fifo", "rules": "eevdf"},
    ],
    ids=["SCHED_IDLE beside the worker", "SCHED_FIFO, CFS", "SCHED_FIFO, EEVDF"],
)
def test_a_competitor_of_a_lower_class_causes_no_wait(changes: Any, tmp_path: Path) -> None:
    load = 0.6
    agrees(load / (1 - load), {**changes, "rate_cps": load * 1e9 / SERVICE_NS}, waiting, tmp_path)


@pytest.mark.parametrize("rules", ["eevdf", "cfs"])
@pytest.mark.parametrize(("nice", "weight"), [(5, 335), (0, 1024), (-5, 3121)])
def test_a_saturated_worker_and_a_competitor_share_a_cpu_by_weight(
    nice: int, weight: int, rules: str, tmp_path: Path
) -> None:
    changes = {"calls": 60_000, "rate_cps": 3e9 / SERVICE_NS, "drain_ns": 0, "rules": rules}
    numbers = {**SERVER, **competitor(0, 0, nice=nice), **changes}
    report, _ = trace({**numbers, "receive_buffer_bytes": 100}, tmp_path)
    share = report.workers[0].ran_ns / report.t_end_ns
    assert share == pytest.approx(1024 / (1024 + weight), rel=0.02)


@pytest.mark.parametrize("rules", ["eevdf", "cfs"])
def test_a_competitor_of_a_higher_class_takes_a_cpu_completely(rules: str, tmp_path: Path) -> None:
    changes = {"calls": 60_000, "rate_cps": 3e9 / SERVICE_NS, "drain_ns": 0, "rules": rules}
    numbers = {**SERVER, **competitor(20_000_000, 15_000_000, policy="fifo"), **changes}
    report, _ = trace({**numbers, "receive_buffer_bytes": 100}, tmp_path)
    assert report.others[0].ran_ns / report.t_end_ns == pytest.approx(0.75, rel=0.01)
    assert report.workers[0].ran_ns / report.t_end_ns == pytest.approx(0.25, rel=0.03)


@pytest.mark.parametrize("policy", ["other", "batch", "fifo", "idle"])
def test_a_competitor_stays_on_its_cpus(policy: str, tmp_path: Path) -> None:
    beside = competitor(2_000_000, 1_000_000, policy=policy, first_cpu=1)
    numbers = {**CALLS, **beside, "policy": "fifo", "rate_cps": 8000.0}
    report, _ = trace(numbers, tmp_path)
    assert report.others[0].ran_ns > 0
    assert report.others[0].migrations == 0


@pytest.mark.parametrize("rules", ["eevdf", "cfs"])
def test_a_batch_competitor_preempts_no_worker(rules: str, tmp_path: Path) -> None:
    """Compare how long the worker is off the CPU during messages beside a competitor of SCHED_BATCH and SCHED_OTHER."""
    load, service_ns = 0.5, 10 * SERVICE_NS
    numbers = {
        **SERVER,
        **{"service_law": "constant", "service_ns": [service_ns] * 7, "calls": 10_000},
        **{"rate_cps": load * 1e9 / service_ns, "rules": rules},
    }

    def off_cpu_ns(policy: str) -> float:
        beside = competitor(5_000_000, 50_000, policy=policy)
        return float(trace({**numbers, **beside}, tmp_path)[1]["off_cpu_ns"].mean())

    assert off_cpu_ns("batch") < 0.5 * off_cpu_ns("other")


@pytest.mark.parametrize(
    ("changes", "rel"),
    [
        (competitor(20_000_000, 3_000_000), 0.001),
        ({"burst_every_ns": 20_000_000, "burst_ns": 3_000_000}, 0.1),
    ],
    ids=["periodic", "bursts"],
)
def test_another_program_uses_its_share(changes: Any, rel: float, tmp_path: Path) -> None:
    report, _ = trace({**SERVER, **changes, "rate_cps": 3000.0}, tmp_path)
    assert report.others[0].ran_ns / report.t_end_ns == pytest.approx(0.15, rel=rel)


def test_each_cpu_has_a_program_with_bursts_that_stays_there(tmp_path: Path) -> None:
    changes = {"cores": 3, "workers": 3, "burst_every_ns": 20_000_000, "burst_ns": 3_000_000}
    report, _ = trace({**SERVER, **changes, "rate_cps": 6000.0}, tmp_path)
    assert [program.migrations for program in report.others] == [0, 0, 0]
    for program in report.others:
        assert program.ran_ns / report.t_end_ns == pytest.approx(0.15, rel=0.15)


@pytest.mark.parametrize("rules", ["eevdf", "cfs"])
def test_bursts_of_a_large_weight_delay_messages_as_a_higher_priority_does(
    rules: str, tmp_path: Path
) -> None:
    """Compare with the mean sojourn time of the lower class in M/M/1 with preemptive priorities (Kleinrock 1976)."""
    load, bursts, burst_ns = 0.5, 0.15, 3_000_000
    changes = {
        "burst_every_ns": round(burst_ns / bursts),
        "burst_ns": burst_ns,
        "burst_weight": 88761,
        "rate_cps": load * 1e9 / SERVICE_NS,
        "rules": rules,
    }
    busy_ns = load * SERVICE_NS + bursts * burst_ns
    own = (1 - bursts - load) + busy_ns / SERVICE_NS
    agrees(own / (1 - bursts) / (1 - bursts - load), changes, sojourn, tmp_path)


@pytest.mark.parametrize("rules", ["eevdf", "cfs"])
@pytest.mark.parametrize("queue", [1, 8])
def test_a_logger_takes_its_share_of_the_capacity(queue: int, rules: str, tmp_path: Path) -> None:
    changes = {"logger_ns": 25_000, "logger_queue": queue, "rules": rules, "drain_ns": 0}
    overload = {"calls": 60_000, "rate_cps": 3e9 / SERVICE_NS, "receive_buffer_bytes": 100}
    report, _ = trace({**SERVER, **changes, **overload}, tmp_path)
    capacity = 1e9 / (SERVICE_NS + changes["logger_ns"])
    assert report.served / (report.t_end_ns / 1e9) == pytest.approx(capacity, rel=0.03)
    assert report.served - queue <= report.others[0].messages <= report.served


@pytest.mark.parametrize("rules", ["eevdf", "cfs"])
@pytest.mark.parametrize(
    ("cores", "logger_ns"), [(1, 25_000), (1, 300_000), (2, 30_000), (2, 150_000)]
)
def test_a_logger_on_its_own_cpu_blocks_workers_only_if_it_is_slower(
    cores: int, logger_ns: int, rules: str, tmp_path: Path
) -> None:
    changes = {
        **{"logger_ns": logger_ns, "logger_queue": 8, "logger_apart": True, "drain_ns": 0},
        **{"cores": cores, "workers": cores, "rules": rules},
    }
    overload = {"calls": 60_000, "rate_cps": 5e9 / SERVICE_NS, "receive_buffer_bytes": 100}
    report, _ = trace({**SERVER, **changes, **overload}, tmp_path)
    capacity = 1e9 / max(SERVICE_NS / cores, logger_ns)
    assert report.served / (report.t_end_ns / 1e9) == pytest.approx(capacity, rel=0.03)
    assert len(report.cpus) == cores + 1
    if logger_ns * cores > 2 * SERVICE_NS:
        # All workers wait for the logger, so a message takes one turn of the logger per worker (Little 1961).
        assert report.t_sip_ns / report.served == pytest.approx(cores * logger_ns, rel=0.05)
    assert report.cpus[cores].task == report.others[0].ran_ns > 0


def test_the_migration_cost_matters_only_beside_a_competitor(tmp_path: Path) -> None:
    """Compare the simulator with measurements in a guest of kernel 5.10 (docs/simulator/papers.md).

    In the guest, two workers ran on two cores. Beside a task that uses 3 ms in every 20 ms, a migration cost of 0
    instead of 5 ms lowers the mean wait by 87 and 93 %. Without this task, the migration cost changes nothing.
    """
    numbers = {
        **SERVER,
        **dict.fromkeys(("switch_ns", "receive_ns"), 1_500),
        **{"cores": 2, "workers": 2, "rules": "cfs", "release": "5.10", "receive_cpus": 1},
        **{"latency_ns": 2_000_000, "min_granularity_ns": 200_000, "wakeup_granularity_ns": 50_000},
        **{"service_law": "constant", "service_ns": [75_000] * 7, "rate_cps": 2 * 0.65e9 / 75_000},
    }
    beside = competitor(20_000_000, 3_000_000, cpus=2)

    def mean_wait(changes: ModelNumbers, cost_ns: int) -> float:
        report, _ = trace({**numbers, **changes, "migration_cost_ns": cost_ns}, tmp_path)
        return report.k_rcv_ns / report.served

    assert mean_wait({}, 0) == pytest.approx(mean_wait({}, 5_000_000), rel=0.02)
    assert mean_wait(beside, 0) < 0.5 * mean_wait(beside, 5_000_000)
