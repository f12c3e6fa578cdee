"""A table of the slowest messages of runs, with the parts of each message's time and an explanation."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from sipsched.pages.explore.lanes import others_served
from sipsched.pages.explore.ran import ran_words
from sipsched.pages.explore.timeline import US, Messages
from sipsched.records.catalogue import KEYS
from sipsched.records.frames import KIND_NAMES
from sipsched.words import number


def slowest(
    runs: Iterable[tuple[Messages, npt.NDArray[np.str_]]], modes: Sequence[str], count: int
) -> pd.DataFrame:
    """Return a table of the messages with the longest total time (wait K_rcv + service T_sip).

    Parameters
    ----------
    runs
        The messages of each run, and the mode in force at the arrival of each message.
    modes
        Only messages that arrived in one of these modes are listed. If empty, all messages are listed.
    count
        Number of messages.

    Returns
    -------
    DataFrame
        One row per message, with the slowest message first. The first columns are the keys in which the runs differ,
        and `mode`. `message` is the message's number in order of arrival within the run, from 0. `at_s` is the time
        since the first arrival. Type, worker and cpu follow. `total`, `k_stack`, `k_sockq`, `k_copy`, `t_sip` and
        `t_sip_off` are in µs, NaN where missing. The last column is `explanation`.
    """
    rows = []
    for messages, in_force in runs:
        total = messages.wait_us + messages.service_us
        if modes:
            total = np.where(np.isin(in_force, modes), total, np.nan)
        known = np.flatnonzero(~np.isnan(total))
        for index in known[np.argsort(-total[known], kind="stable")][:count]:
            rows.append(
                {
                    **{key: getattr(messages.run, key) for key in KEYS[1:]},
                    "mode": str(in_force[index]),
                    "message": int(index),
                    "at_s": float(messages.at_s[index]),
                    "type": KIND_NAMES[int(messages.kind[index])],
                    "worker": int(messages.worker[index]),
                    "cpu": int(messages.cpu[index]),
                    "total": float(total[index]),
                    **{name: float(part[index]) for name, part in messages.parts_us.items()},
                    "t_sip": float(messages.service_us[index]),
                    "t_sip_off": float(messages.off_us[index]),
                    "explanation": explain(messages, int(index)),
                }
            )
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    alike = [key for key in KEYS[1:] if table[key].nunique() == 1 and key != "mode"]
    table = table.sort_values("total", ascending=False, kind="stable")[:count]
    return table.drop(columns=alike).reset_index(drop=True)


def explain(messages: Messages, index: int) -> str:
    """Return sentences on the longest part of a message's time, and on the workers and programs that ran meanwhile."""
    off = float(np.nan_to_num(messages.off_us[index]))
    parts = {name: float(np.nan_to_num(part[index])) for name, part in messages.parts_us.items()}
    parts |= {"off": off, "on": float(messages.service_us[index]) - off}
    if not any(parts[name] for name in messages.parts_us):
        parts["k_rcv"] = float(messages.wait_us[index])
    longest = max(parts, key=lambda name: parts[name])
    time = f"{number(parts[longest])} µs"
    arrived, taken = float(messages.at_s[index] * US), float(messages.taken_us[index])
    stretch = (arrived, taken)
    match longest:
        case "k_stack":
            text = f"The message needed {time} from the driver to the socket's queue."
            stretch = (arrived, arrived + parts["k_stack"])
        case "k_copy":
            text = f"The worker needed {time} to copy the message out of the socket's queue."
            stretch = (taken - parts["k_copy"], taken)
        case "off":
            text = f"The worker was off CPU for {time} while it served the message."
            stretch = (taken, float(messages.sent_us[index]))
        case "on":
            return f"The worker used {time} of CPU time for the message."
        case _:
            text = f"The message waited {time} for a worker. {others_served(messages, index, *stretch)}"
    return f"{text} {ran_words(messages, index, *stretch)}".rstrip()
