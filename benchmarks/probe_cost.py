"""What the probe costs: CPU time of the proxy a message, with and without it, in alternation.

The order alternates from pair to pair (off-on, on-off …) after a warm-up run that is left out. The CPU
time is that of all processes of the proxy (/proc/PID/schedstat), receive work of the kernel on their CPU
included. Printed: each pair, and the median of the pairs' ratios.
"""

import dataclasses
import json
import statistics
import tempfile
from pathlib import Path

from sipsched.measure import acquisition
from sipsched.plan import config
from sipsched.testbed import inventory

PAIRS = 7
CPS = 1000
THREADS = 4
DURATION_S = 5.0


def cpu_us_a_message(campaign: config.Config, probe: str, rep: int, raw: Path) -> float:
    run = config.Run("local", "kamailio-udp", "default", 1, THREADS, CPS, rep)
    settings = dataclasses.replace(campaign, probe=probe)
    record = acquisition.measure(run, settings, inventory.load_testbed("local"), raw / probe)
    document = json.loads((record / "run.json").read_text())
    return float(document["proxy"]["cpu_ns"] / (6 * document["load"]["calls"]) / 1e3)


def main() -> None:
    campaign = config.load_config()
    load = dataclasses.replace(campaign.load, duration_s=DURATION_S)
    campaign = dataclasses.replace(campaign, load=load)
    ratios, off, on = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for rep in range(PAIRS + 1):
            order = ("off", "auto") if rep % 2 else ("auto", "off")
            pair = {probe: cpu_us_a_message(campaign, probe, rep, Path(folder)) for probe in order}
            if rep == 0:
                continue
            off.append(pair["off"])
            on.append(pair["auto"])
            ratios.append(pair["auto"] / pair["off"])
            print(
                f"pair {rep}: {pair['off']:.1f} µs a message without the probe, "
                f"{pair['auto']:.1f} with it, ratio {ratios[-1]:.3f}",
                flush=True,
            )
    print(
        f"probe cost: {statistics.median(off):.1f} -> {statistics.median(on):.1f} µs CPU a message, "
        f"median ratio {statistics.median(ratios):.3f} "
        f"({PAIRS} pairs, kamailio-udp, {THREADS} workers, {CPS} cps, {DURATION_S:g} s)"
    )


if __name__ == "__main__":
    main()
