"""Check that every message of a run was received or counted as a drop, below the capacity and above the capacity.

The run below the capacity has 100,000 calls at half the capacity. The run above the capacity has 1.2 times the load of
the capacity.
"""

import json
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from sipsched.errors import SipschedError
from sipsched.measure import acquisition, crossing_search
from sipsched.plan.config import Config, load_config
from sipsched.plan.run import Point
from sipsched.records import crossing
from sipsched.records.trace import Event, MessageKind, read_trace
from sipsched.testbed.inventory import Testbed, load_testbed

CALLS = 100_000
THREADS = 8
PAST_S = 10.0
HIGHEST_CPS = 12_000
"""Highest load that the capacity search tries. This load is above the capacity of every proxy in this benchmark."""
KINDS = [kind for kind in MessageKind if kind is not MessageKind.OTHER]


def main() -> None:
    config, testbed = load_config(), load_testbed("local")
    config = replace(config, search=replace(config.search, highest_cps=HIGHEST_CPS))
    names = sys.argv[1:] or ["kamailio-udp", "kamailio-udp-stateless", "opensips-udp"]
    for name in names:
        proxy = config.sut(name).proxy
        if shutil.which(proxy) is None:
            print(f"{name}: not measured, because {proxy} is not installed on this machine")
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(name, config, testbed, Path(folder))
            except SipschedError as error:
                print(f"{name}: not measured: {error}")


def check(sut: str, config: Config, testbed: Testbed, raw: Path) -> None:
    point = Point("local", sut, "default", 1, THREADS)
    crossing_search.search_crossing(point, config, testbed, raw)
    lower, upper = crossing.read_crossings(raw, [point])[point]
    half, past = lower // 2, round(1.2 * upper)
    print(f"{sut}: {THREADS} threads on one core, 1 % crossing between {lower} and {upper} cps")
    for cps, duration_s in ((half, CALLS / half), (past, PAST_S)):
        load = replace(config.load, duration_s=duration_s, drain_s=4.0)
        folder = acquisition.measure(
            point.run(cps, rep=1), replace(config, load=load), testbed, raw
        )
        document = json.loads((folder / "run.json").read_text())
        records = read_trace(folder / "trace.bin.zst").records
        received = records[records["event"] == Event.MESSAGE]
        kinds = np.bincount(received["kind"], minlength=max(KINDS) + 1)[KINDS]
        calls, ledger = document["generator"], document["ledger"]
        again = [
            sum(sends["again"] for sends in document["requests"][side].values())
            for side in ("uac", "sps")
        ]
        print(
            f"  {cps} cps: {calls['calls_completed']} of {document['load']['calls']} calls completed, "
            f"messages of each kind {kinds.min()} to {kinds.max()}, "
            f"ledger residual {ledger['to_sps']['residual']} and {ledger['from_sps']['residual']}; "
            f"requests sent again: UAC {again[0]}, SPS {again[1]}, "
            f"disputed by the two counts {document['requests']['disagreement']}; "
            f"refused {ledger['to_sps']['refused']} of {ledger['to_sps']['sent']}; "
            f"verdict {document['verdict']['grade']}",
            flush=True,
        )


if __name__ == "__main__":
    main()
