"""Tests of the division of a machine's cores among the hosts of testbed local, on fabricated machines."""

from pathlib import Path

import pytest

from sipsched.testbed.topology import ONE_CORE, Core, Division, divide, read_cores


def fabricated(folder: Path, processors: int, cores: int, threads: int = 1) -> Path:
    """Write the files in which Linux describes CPUs. Second hyper-threads have higher numbers than all cores."""
    total = processors * cores
    for cpu in range(total * threads):
        core = cpu % total
        topology = folder / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{core // cores}\n")
        siblings = ",".join(str(core + thread * total) for thread in range(threads))
        (topology / "thread_siblings_list").write_text(f"{siblings}\n")
    last = total * threads - 1
    (folder / "online").write_text(f"0-{last}\n" if last else "0\n")
    return folder


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ((1, 1), ONE_CORE),
        # one core with two hyper-threads is divided like one core with one hyper-thread
        ((1, 1, 2), ONE_CORE),
        ((1, 2), Division(uac=(0,), uas=(0,), sps=(1, 0), helpers=(0,))),
        ((1, 2, 2), Division(uac=(0,), uas=(0,), sps=(1, 0), helpers=(2,))),
        ((1, 3), Division(uac=(0,), uas=(0,), sps=(1, 2, 0), helpers=(0,))),
        ((1, 4), Division(uac=(1,), uas=(1,), sps=(2, 3), helpers=(0,))),
        ((1, 8), Division(uac=(1,), uas=(2,), sps=(3, 4, 5, 6, 7), helpers=(0,))),
        # the proxy uses one hyper-thread per core, and the generators use both hyper-threads
        ((1, 8, 2), Division(uac=(1, 9), uas=(2, 10), sps=(3, 4, 5, 6, 7), helpers=(0, 8))),
        ((1, 16), Division((1, 2, 3), (4, 5, 6), tuple(range(7, 16)), (0,))),
        # the proxy fills the second processor before it uses the first
        ((2, 6), Division((1, 2), (3, 4), (6, 7, 8, 9, 10, 11, 5), (0,))),
    ],
)
def test_generators_helpers_and_proxy_have_their_own_cores(
    tmp_path: Path, machine: tuple[int, ...], expected: Division
) -> None:
    cores = read_cores(fabricated(tmp_path, *machine), range(64))
    assert divide(cores) == expected
    if len(cores) >= 4:
        parts = [expected.sps, expected.helpers, (*expected.uac, *expected.uas)]
        owners = [{core for core in cores if set(core.cpus) & set(part)} for part in parts]
        assert sum(map(len, owners)) == len(set().union(*owners))


@pytest.mark.parametrize("count", range(2, 65))
def test_every_machine_has_cpus_for_every_host(count: int) -> None:
    division = divide([Core(cpu // 16, (cpu, cpu + 64)) for cpu in range(count)])
    assert all(vars(division).values())
    assert set(division.front) == {*division.uac, *division.uas}
    assert len(division.sps) == len(set(division.sps)) >= count // 2


def test_cpus_that_the_process_may_not_use_are_ignored(tmp_path: Path) -> None:
    folder = fabricated(tmp_path, 1, 4, 2)
    assert read_cores(folder, {0, 2, 6}) == (Core(0, (0,)), Core(0, (2, 6)))


def test_a_machine_without_linux_has_no_cores(tmp_path: Path) -> None:
    assert read_cores(tmp_path, {0}) == ()
    assert divide(()) == ONE_CORE
