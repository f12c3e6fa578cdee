"""Tests that damaged input from hosts and users is accepted, or rejected by an error of one line.

For each parser, Hypothesis damages real input (recorded/raw, files of this project). The damage is the same each time.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import synthetic
import yaml
import zstandard
from damage import (
    damaged_bytes,
    damaged_document,
    damaged_json,
    damaged_text,
    few,
    good_or_one_line,
    steady,
)
from hypothesis import given
from hypothesis import strategies as st

from sipsched.measure.cpu_layout import parse_lscpu
from sipsched.measure.generator import read_calls, read_sipload_report
from sipsched.measure.hoststate import parse_lscpu_json, split_sections
from sipsched.measure.memory import available_mib
from sipsched.measure.noise import parse_jitter
from sipsched.measure.probe import parse_report
from sipsched.paths import PROJECT_ROOT, TESTBEDS
from sipsched.plan import config, documents, modes
from sipsched.plan.run import Run
from sipsched.records import messages, run_summary
from sipsched.records.crossing import read_crossing
from sipsched.records.noise_record import read_noise
from sipsched.records.run_document import read_run
from sipsched.records.trace import read_trace
from sipsched.testbed.inventory import load_testbed
from sipsched.testbed.topology import parse_cpu_list
from sipsched.validity import counters
from sipsched.validity.ledger import balance

RECORDED = PROJECT_ROOT / "recorded" / "fit" / "local"
RUN = RECORDED / "kamailio-udp/default/cores~1/threads~8/cps~1000/rep~1"
COUNTERS = json.loads(zstandard.decompress((RUN / "counters.json.zst").read_bytes()))
FILES = COUNTERS["sps"]["after"]
CROSSING = next((PROJECT_ROOT / "recorded" / "raw").rglob("crossing.json"))
LSCPU = "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n0,0,0,0,,0,0,0,0\n1,1,0,0,,1,1,1,0\n"
REPORT = {"mode": "exact", "mode_reason": "", "records": 6, "drops": 0, "lost": 0}
JITTER = {key: synthetic.noise()["cpus"][0][key] for key in ("cpu", "cpu_changes", "reads")}
LSCPU_JSON = {"lscpu": [{"field": "Model name:", "data": "x", "children": [{"field": "CPU(s):"}]}]}
CAMPAIGN = config.load_config()
DATA = Path(__file__).parents[1] / "data"
SIPLOAD = json.loads((DATA / "sipload" / "uac-1600cps.json").read_text())


def unsealed(path: Path) -> dict[str, Any]:
    """Read a record of JSON, without its SHA-256."""
    document: dict[str, Any] = json.loads(path.read_text())
    del document["sha256"]
    return document


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder that all examples of a test overwrite."""
    return tmp_path_factory.mktemp("damaged")


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a complete record of five calls."""
    return synthetic.write_record(tmp_path_factory.mktemp("raw"), synthetic.Run(), calls=5)


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("name", "parse"),
    [
        ("/proc/net/snmp", counters.parse_snmp),
        ("/proc/net/netstat", counters.parse_snmp),
        ("/proc/net/dev", counters.parse_dev),
        ("/proc/stat", counters.parse_stat),
    ],
)
@given(data=st.data())
@few
def test_counters(name: str, parse: Any, data: st.DataObject) -> None:
    parse(FILES[name])
    text = data.draw(damaged_text(FILES[name][:3000]))
    good_or_one_line(lambda: parse(text))


@given(data=st.data())
@steady
def test_ledger(data: st.DataObject) -> None:
    balance(COUNTERS)
    role = data.draw(st.sampled_from(["uac", "sps", "uas"]))
    name = data.draw(st.sampled_from(["/proc/net/snmp", "/proc/net/dev"]))
    after = dict(COUNTERS[role]["after"])
    if data.draw(st.booleans()):
        after[name] = data.draw(damaged_text(after[name]))
    else:
        del after[name]
    snapshots = COUNTERS | {role: COUNTERS[role] | {"after": after}}
    good_or_one_line(lambda: balance(snapshots))


@given(data=st.data())
@steady
def test_counters_file(record: Path, data: st.DataObject) -> None:
    result = synthetic.counters(30, 0)
    path = record / "counters.json.zst"
    whole = path.read_bytes(), (record / "run.json").read_bytes()
    path.write_bytes(zstandard.compress(data.draw(damaged_json(result))))
    synthetic.rewrite(record)
    messages_file = record.parent / "messages.nc"
    messages.write_messages(messages.messages_from_record(record), messages_file)
    good_or_one_line(lambda: run_summary.summarise_run(messages_file, record))
    path.write_bytes(whole[0])
    (record / "run.json").write_bytes(whole[1])


@given(text=damaged_text("==> /proc/stat <==\ncpu 1 2\n==> /proc/uptime <==\n1.0 2.0\n"))
@few
def test_files_of_a_host(text: str) -> None:
    lines = text.splitlines(keepends=True)
    headings = [line for line in lines if line.startswith("==> ") and line.endswith(" <==\n")]
    sections = split_sections(text)
    assert set(sections) == {line[4:-5] for line in headings}
    # Each section has the lines below its heading. The parser drops the lines before the first heading.
    kept = [line for content in sections.values() for line in content.splitlines(keepends=True)]
    before = lines.index(headings[0]) if headings else len(lines)
    assert sorted(kept) == sorted(line for line in lines[before:] if line not in headings)


@pytest.mark.parametrize(
    ("whole", "parse"),
    [
        ("MemTotal:       24682980 kB\nMemAvailable:   23671460 kB\n", available_mib),
        (LSCPU, lambda text: parse_lscpu(text, (1,))),
        ("0-3,8\n", parse_cpu_list),
    ],
)
@given(data=st.data())
@steady
def test_text_of_a_host(whole: str, parse: Any, data: st.DataObject) -> None:
    parse(whole)
    damaged = data.draw(damaged_text(whole))
    good_or_one_line(lambda: parse(damaged))


@pytest.mark.parametrize(
    ("whole", "parse"),
    [
        (LSCPU_JSON, lambda text: parse_lscpu_json(text, "sps")),
        (REPORT, lambda text: parse_report(text, "sps")),
        (JITTER, lambda text: parse_jitter(text, 1, "sps")),
        (SIPLOAD, lambda text: read_sipload_report(text, "uac.json")),
    ],
)
@given(data=st.data())
@steady
def test_json_of_a_program(whole: Any, parse: Any, data: st.DataObject) -> None:
    parse(json.dumps(whole))
    damaged = data.draw(damaged_json(whole)).decode("utf-8", "replace")
    good_or_one_line(lambda: parse(damaged))


@pytest.mark.parametrize(("name", "read"), [("trace.bin.zst", read_trace), ("c.zst", read_calls)])
@given(data=st.data())
@steady
def test_trace_and_calls(place: Path, name: str, read: Any, data: st.DataObject) -> None:
    source = RUN / ("trace.bin.zst" if read is read_trace else "uac.calls.zst")
    whole = zstandard.ZstdDecompressor().stream_reader(source.open("rb")).read(4000)
    if data.draw(st.booleans()):
        damaged = synthetic.compress(data.draw(damaged_bytes(whole)))
    else:
        damaged = data.draw(damaged_bytes(synthetic.compress(whole)))
    path = written(place / name, damaged)
    good_or_one_line(lambda: read(path))


@given(data=st.data())
@few
def test_messages_of_a_damaged_trace(record: Path, data: st.DataObject) -> None:
    path = record / "trace.bin.zst"
    whole, run_json = path.read_bytes(), (record / "run.json").read_bytes()
    trace = zstandard.ZstdDecompressor().decompressobj().decompress(whole)
    path.write_bytes(synthetic.compress(data.draw(damaged_bytes(trace))))
    synthetic.rewrite(record)
    good_or_one_line(lambda: messages.messages_from_record(record))
    path.write_bytes(whole)
    (record / "run.json").write_bytes(run_json)


@given(data=damaged_json(unsealed(RUN / "run.json"), synthetic.sealed))
@few
def test_run_json(place: Path, data: bytes) -> None:
    written(place / "run.json", data)
    good_or_one_line(lambda: read_run(place))


@given(data=damaged_json(unsealed(CROSSING), synthetic.sealed))
@steady
def test_crossing(place: Path, data: bytes) -> None:
    read_crossing(CROSSING)
    path = written(place / "crossing.json", data)
    good_or_one_line(lambda: read_crossing(path))


@given(data=damaged_json(synthetic.noise(), synthetic.sealed))
@steady
def test_noise(place: Path, data: bytes) -> None:
    path = written(place / "noise.json", data)
    good_or_one_line(lambda: [cpu.lost_share for cpu in read_noise(path).cpus])


@pytest.mark.parametrize("name", ["config", "modes"])
@given(data=st.data())
@few
def test_text_of_the_configuration(place: Path, name: str, data: st.DataObject) -> None:
    whole = (PROJECT_ROOT / "config" / f"{name}.yaml").read_text()
    path = written(place / f"{name}.yaml", data.draw(damaged_text(whole)).encode())
    good_or_one_line(lambda: (config.load_config if name == "config" else modes.load_modes)(path))
    good_or_one_line(lambda: config.check_files([path]))


@given(document=damaged_document(documents.read_yaml(PROJECT_ROOT / "config" / "config.yaml")))
@steady
def test_configuration(document: Any) -> None:
    def runs() -> None:
        campaign = config.parse_config(document)
        for run in campaign.runs()[:2]:
            campaign.check_run(run)

    good_or_one_line(runs)


@given(document=damaged_document(documents.read_yaml(PROJECT_ROOT / "config" / "modes.yaml")))
@steady
def test_modes(place: Path, document: Any) -> None:
    path = place / "modes.yaml"

    def settings() -> None:
        path.write_text(yaml.safe_dump(document))
        declared = modes.load_modes(path)
        for name in declared:
            modes.find_mode(name, declared).settings(modes.Counts(2, 8, 1))

    good_or_one_line(settings)


@pytest.mark.parametrize("name", ["local", "vm", "example-physical"])
@given(data=st.data())
@few
def test_testbed(place: Path, name: str, data: st.DataObject) -> None:
    whole = (TESTBEDS / f"{name}.yaml").read_text()
    if data.draw(st.booleans()):
        text = data.draw(damaged_text(whole))
    else:
        text = yaml.safe_dump(data.draw(damaged_document(yaml.safe_load(whole))))
    (place / f"{name}.yaml").write_bytes(text.encode("utf-8", "replace"))
    good_or_one_line(lambda: load_testbed(name, place).labels)


@given(
    mode=st.text(min_size=1, max_size=8),
    numbers=st.lists(st.integers(min_value=-1), min_size=4, max_size=4),
)
@few
def test_a_requested_run(mode: str, numbers: list[int]) -> None:
    run = Run("local", "kamailio-udp", mode, *numbers)
    good_or_one_line(lambda: CAMPAIGN.check_run(run))
