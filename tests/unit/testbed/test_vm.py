"""Tests of the testbed `vm` without a guest: command line, names, package sources, and errors."""

import dataclasses
import gzip
import os
import re
import struct
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import values_of

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.testbed import debian, guest_image, vm
from sipsched.testbed.guest import QEMU
from sipsched.testbed.inventory import load_testbed

TESTBED = load_testbed("vm")
IMAGE = guest_image.GuestImage(Path("/images/6.1-abc"))


def command(accelerator: str = "tcg", **changes: Any) -> list[str]:
    assert TESTBED.guest is not None
    changed = dataclasses.replace(TESTBED.guest, **changes)
    return vm.qemu_command(changed, IMAGE, Path("/state"), accelerator)


def test_the_command_line_of_the_guest() -> None:
    argv = command()
    assert argv[0] == QEMU
    assert values_of(argv, "-smp") == ["8,sockets=2,cores=4,threads=1"]
    assert values_of(argv, "-kernel") == ["/images/6.1-abc/vmlinuz"]
    assert values_of(argv, "-accel") == ["tcg,thread=single"]
    assert "tsc=reliable" in values_of(argv, "-append")[0]
    # QEMU must open the image read-only
    root, seed = values_of(argv, "-drive")
    assert "snapshot=on" in root and "readonly=on" in seed
    assert "nvme,drive=root,serial=root" in values_of(argv, "-device")
    kvm = command("kvm")
    assert (values_of(kvm, "-accel"), values_of(kvm, "-cpu")) == (["kvm"], ["host"])
    assert "tsc=reliable" not in values_of(kvm, "-append")[0]
    # a kernel that is not from Debian uses virtio disks
    own = command(kernel="/a/bzImage")
    assert "virtio-blk-pci,drive=root,serial=root" in values_of(own, "-device")
    assert {"root=/dev/vda", "seed=/dev/vdb"} < set(values_of(own, "-append")[0].split())
    assert command(host_cpus=(2, 3))[:4] == ["taskset", "--cpu-list", "2,3", QEMU]


def test_names_and_addresses_are_unique_and_fit_the_kernel() -> None:
    assert len({link.mac for link in vm.LINKS}) == len({link.tap for link in vm.LINKS}) == 3
    names = [link.tap for link in vm.LINKS] + [namespace.link for namespace in vm.NAMESPACES]
    assert all(len(name) <= 15 for name in names)
    addresses = {namespace.role: namespace.management for namespace in vm.NAMESPACES}
    addresses["sps"] = vm.MANAGEMENT.address.removesuffix("/30")
    assert {spec.role: spec.address for spec in TESTBED.hosts} == addresses
    assert all(str(vm.STATE) in spec.identity_file for spec in TESTBED.hosts)
    # the embedded testbed and the guest can exist at the same time
    assert not {spec.address for spec in load_testbed("local").hosts} & set(addresses.values())


def test_the_guest_steers_receive_work_to_the_cpus_of_the_sps() -> None:
    script = vm.network_script((0, 1, 2, 3, 4, 5, 6))
    assert "echo 7f > /sys/class/net/uac0/queues/rx-0/rps_cpus" in script
    assert "ip address add 198.18.0.1/32 dev lo" in script


def bzimage(release: str, payload: bytes) -> bytes:
    """Return a minimal bzImage with the parts that the project reads: header, version and payload."""
    content = bytearray(3 * 512)
    content[0x1F1] = 2
    content[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", content, 0x20E, 0x100)
    text = f"{release} (builder) #1 SMP\0".encode()
    content[0x300 : 0x300 + len(text)] = text
    struct.pack_into("<II", content, 0x248, 16, len(payload))
    return bytes(content) + b"\x90" * 16 + payload + bytes(64)


def test_release_and_vmlinux_of_a_kernel_are_read() -> None:
    vmlinux = b"\x7fELF" + b"types" * 100
    content = bzimage("6.1.99-test", gzip.compress(vmlinux) + struct.pack("<I", len(vmlinux)))
    assert guest_image.kernel_release(content, "k") == "6.1.99-test"
    assert guest_image.unpack_kernel(content) == vmlinux
    assert guest_image.unpack_kernel(bzimage("6.1", b"not packed")) is None


def test_a_file_that_is_not_a_kernel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        StableError, match=r"guest kernel '/no/such': no such file; .* 6.12, 6.1, 5.10"
    ):
        guest_image.image_name("/no/such")
    (tmp_path / "text").write_text("x" * 4096)
    with pytest.raises(StableError, match="not a bzImage"):
        guest_image.image_name(str(tmp_path / "text"))


def test_the_name_of_an_image_depends_on_its_content(tmp_path: Path, monkeypatch: Any) -> None:
    first = guest_image.image_name("6.1")
    assert re.fullmatch(r"6\.1-[0-9a-f]{12}", first)
    assert guest_image.image_name("5.10").split("-")[1] != first.split("-")[1]
    assert guest_image.image_name("6.1") == first
    changed = tmp_path / "init"
    changed.write_text("#!/bin/sh\n")
    monkeypatch.setattr(guest_image, "INIT", changed)
    assert guest_image.image_name("6.1") != first


def test_the_name_of_an_image_depends_on_the_copied_files(tmp_path: Path) -> None:
    program = tmp_path / "modules" / "tm.so"
    program.parent.mkdir()
    program.write_text("one")
    copies = [str(program.parent)]
    first = guest_image.image_name("6.1", copies)
    assert first not in (guest_image.image_name("6.1"), guest_image.image_name("5.10", copies))
    assert guest_image.image_name("6.1", copies) == first
    program.write_text("two")
    assert guest_image.image_name("6.1", copies) != first
    program.unlink()
    program.parent.rmdir()
    with pytest.raises(
        StableError, match=r"guest: \S+/modules does not exist .* or has no file; .* virtual.copies"
    ):
        guest_image.image_name("6.1", copies)


def target(
    uri: str, codename: str, label: str, origin: str = "Debian", of: str = "Packages"
) -> str:
    return (
        f"MetaKey: main/binary-amd64/{of}\nCodename: {codename}\nLabel: {label}\n"
        f"Origin: {origin}\nComponent: main\nCreated-By: {of}\nRepo-URI: {uri}\n"
    )


def test_package_sources_are_the_servers_of_this_machine() -> None:
    listing = "\n".join(
        [
            target("http://mirror.example/debian/", "bookworm", "Debian"),
            target("http://mirror.example/debian/", "bookworm", "Debian", of="DEP-11"),
            target("http://mirror.example/debian/", "bookworm-updates", "Debian"),
            target("http://mirror.example/security/", "bookworm-security", "Debian-Security"),
            target("http://vendor.example/", "bookworm", "Vendor", origin="Vendor"),
        ]
    )
    assert debian.sources(listing, "bullseye") == [
        "deb http://mirror.example/debian/ bullseye main",
        "deb http://mirror.example/security/ bullseye-security main",
    ]
    assert debian.sources("", "bookworm") == []


def test_a_failed_build_quotes_its_log_and_leaves_no_image(
    tmp_path: Path, monkeypatch: Any
) -> None:
    def fail(builder: Any, kernel: str, copies: Any) -> None:
        builder._run(["sh", "-c", "echo E: no space left >&2; exit 1"])

    monkeypatch.setattr(guest_image._Builder, "build", fail)
    with pytest.raises(StableError, match=r"image build failed: sh: E: no space left; its log is"):
        guest_image.ensure_image("6.1", lambda line: None, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["build.lock", "build.log"]


def test_files_of_a_mount_are_not_removed(tmp_path: Path, monkeypatch: Any) -> None:
    partial = tmp_path / "6.1-abc.partial"
    (partial / "root" / "proc").mkdir(parents=True)
    (partial / "root" / "proc" / "kept").touch()
    mounted = f"36 25 0:4 / {partial}/root/proc rw - proc proc rw\n"
    real = Path.read_text

    def with_mount(path: Path, *args: Any, **options: Any) -> str:
        return mounted if path.name == "mountinfo" else real(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", with_mount)
        with pytest.raises(StableError, match=r"root/proc is still mounted.*unmount the folder"):
            guest_image._discard(partial)
    assert (partial / "root" / "proc" / "kept").exists()
    guest_image._discard(partial)
    assert not partial.exists()


def test_only_old_images_are_removed(tmp_path: Path) -> None:
    for number, name in enumerate(["6.1-1", "6.1-2", "6.1-3", "6.1-4", "6.1-5.partial", "5.10-1"]):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (number, number))
    guest_image._forget_old(guest_image.GuestImage(tmp_path / "6.1-4"), tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"6.1-2", "6.1-3", "6.1-4", "6.1-5.partial", "5.10-1"}


def test_a_guest_needs_the_cpus_of_the_sps(tmp_path: Path) -> None:
    document = yaml.safe_load((PROJECT_ROOT / "hardware/testbeds/vm.yaml").read_text())
    document["vm"]["sockets"] = 1
    (tmp_path / "vm.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(StableError, match=r"guest has CPUs 0 to 3 .*found \[4, 5, 6, 7\]"):
        load_testbed("vm", tmp_path)
    del document["vm"]
    (tmp_path / "vm.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(StableError, match="vm is missing: a testbed of kind vm needs it"):
        load_testbed("vm", tmp_path)


def test_root_and_qemu_are_needed(monkeypatch: Any) -> None:
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(StableError, match="testbed vm: needs root"):
        vm.bring_up(TESTBED)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name, path=None: None if name == QEMU else name)
    message = f"program {QEMU} is missing on this machine; run: fab provision --testbed=vm"
    with pytest.raises(StableError, match=message):
        vm.bring_up(TESTBED)


def test_emulated_timings_are_labelled(tmp_path: Path) -> None:
    guest_testbed = vm.VmTestbed()
    guest_testbed.state = tmp_path
    for accelerator, fidelity in (("tcg", vm.EMULATED), ("kvm", TESTBED.fidelity)):
        (tmp_path / "accelerator").write_text(f"{accelerator}\n")
        booted = guest_testbed.as_booted(TESTBED)
        assert (booted.accelerator, booted.fidelity) == (accelerator, fidelity)


def test_a_failed_boot_quotes_the_console(tmp_path: Path, monkeypatch: Any) -> None:
    guest_testbed = vm.VmTestbed()
    guest_testbed.state = tmp_path
    (tmp_path / "console.log").write_text("one\ntwo\r\n\nKernel panic: no init\nlast\n")
    with pytest.raises(Exception, match=r"ended while booting: two \| Kernel panic: no init"):
        guest_testbed._wait_for_guest(TESTBED, 0.1)
    monkeypatch.setattr(guest_testbed, "_guest_runs", lambda: True)
    with pytest.raises(Exception, match=r"did not come up in 0.1 s: two \| .* \| last"):
        guest_testbed._wait_for_guest(TESTBED, 0.1)
