"""The names, units and definitions of all variables of summaries (docs/data-format.md)."""

import xarray as xr

from sipsched.records import histogram
from sipsched.records.messages import (
    INTERVALS,
    MESSAGE_TYPES,
)
from sipsched.validity.certificate import WINDOWS_MS

ALL = "all"
TYPES = (ALL, *MESSAGE_TYPES)
SUMMARY_TIMES = ("k_rcv", "k_stack", "k_sockq", "k_copy", "t_sip", "t_sip_off", "k_snd")
STATISTICS = ("n", "mean", "sd", "p50", "p95", "p99")
OF_A_RUN = "sipsched run summary"
BY_TYPE, OF_RUN, HISTOGRAM = "by_type", "of_run", "histogram"
"""Names of the three variables in a run's summary: numbers by message type, numbers of the run, and histograms."""
COUNTED = ("k_rcv", "t_sip", "total")
"""Message times with a histogram in the summary of a run. `total` is K_rcv + T_sip of the same message."""
CPU_PARTS = (
    *("proxy_share", "interrupt_share", "kernel_share", "own_share", "competitor_share"),
    *("idle_class_share", "stolen_share", "idle_share"),
)
"""Variables with the shares of the SPS's CPU time. The sum of all shares is 1."""
RUN_DIMS = ("sut", "mode", "cores", "threads", "cps", "rep")
# The unit ("" for text) and the definition of each variable that has one value per run.
RUN_LEVEL = {
    "pdr": ("1", "RcvbufErrors of the SPS in the run / SIP messages that reached the SPS"),
    "rcvbuf_errors": ("1", "RcvbufErrors of the SPS in the run"),
    "in_datagrams": (
        "1",
        "InDatagrams of the SPS in the run, without messages between its front end and its instances",
    ),
    "probe_drops": (
        "1",
        "refused datagrams counted by the probe, including datagrams that arrived but were never received",
    ),
    "lost_records": ("1", "records that the probe lost"),
    "offered_cps": ("s-1", "calls per second of the generator's schedule"),
    "achieved_cps": ("s-1", "calls per second that the generator offered"),
    "calls_created": ("1", "calls begun"),
    "calls_completed": ("1", "calls that ended as their scenario requires"),
    "calls_incomplete": ("1", "calls that did not complete: failed, or open after the drain time"),
    "calls_late": (
        "1",
        "completed calls whose 200 arrived later than the ring time plus `setup_limit_ms`",
    ),
    "call_loss": (
        "1",
        "calls that failed or were set up late, divided by calls begun; over TCP, the limit of the capacity applies "
        "to this share",
    ),
    "messages": ("1", "SIP messages that the SPS received; datagrams over UDP"),
    "so_rcvbuf": ("B", "effective SO_RCVBUF of the proxy's socket"),
    "proxy_cpu_ns": ("ns", "CPU time of all processes of the proxy during the load"),
    "proxy_user_ns": (
        "ns",
        "CPU time of the proxy in user mode during the load, sampled by the clock's ticks",
    ),
    "proxy_system_ns": (
        "ns",
        "CPU time of the proxy in the kernel during the load, sampled by the clock's ticks",
    ),
    "wake_ups": ("1", "voluntary context switches of the proxy's tasks: each ends with a wake-up"),
    "preemptions": (
        "1",
        "involuntary context switches of the proxy's tasks, including switches by sched_yield",
    ),
    "migrations": ("1", "moves of the proxy's tasks to another CPU"),
    "kernel_locks": (
        "1",
        "number of waits of the proxy's tasks for kernel locks, by spinning or by sleeping",
    ),
    "kernel_locks_ns": (
        "ns",
        "length of the waits for kernel locks; the first waiter of a native spinlock is not counted",
    ),
    "own_locks": (
        "1",
        "number of waits of the proxy's tasks for each other in futex or sched_yield",
    ),
    "own_locks_ns": ("ns", "length of the waits in futex and sched_yield"),
    "descriptors": ("1", "file descriptors that the proxy's tasks sent to each other (SCM_RIGHTS)"),
    "generator_cpu_us": ("us", "CPU time of the generator's client and server per call"),
    "steal_s": ("s", "time stolen from the CPUs of the SPS during the run, summed"),
    "proxy_share": ("1", "share of the SPS's CPU time during the load used by the proxy's tasks"),
    "interrupt_share": (
        "1",
        "share of the SPS's CPU time during the load used by interrupts and softirqs",
    ),
    "kernel_share": (
        "1",
        "share of the SPS's CPU time during the load used by threads of the kernel",
    ),
    "own_share": ("1", "share of the SPS's CPU time during the load used by sipsched's programs"),
    "competitor_share": (
        "1",
        "share of the SPS's CPU time during the load used by other programs, without class SCHED_IDLE",
    ),
    "idle_class_share": (
        "1",
        "share of the SPS's CPU time during the load used by other programs of class SCHED_IDLE",
    ),
    "stolen_share": ("1", "share of the SPS's CPU time during the load that the hypervisor took"),
    "idle_share": ("1", "share of the SPS's CPU time during the load in which nothing ran"),
    "competitor_wait_s": (
        "s",
        "longest time that a runnable task of the proxy waited while other tasks used its CPU",
    ),
    "ks_distance": (
        "1",
        "Kolmogorov-Smirnov distance between the inter-arrival times and their distribution",
    ),
    "ks_p_value": ("1", "asymptotic p-value of the Kolmogorov-Smirnov distance"),
    "cv": ("1", "coefficient of variation of inter-arrival times; 1 if exponential"),
    **{
        f"variance_to_mean_{window}ms": (
            "1",
            f"variance over mean of starts in {window} ms; 1 if Poisson",
        )
        for window in WINDOWS_MS
    },
    "lateness_p50_us": ("us", "median of start minus intended start"),
    "lateness_p99_us": ("us", "99th percentile of start minus intended start"),
    "lateness_max_us": ("us", "largest start minus intended start"),
    "generator_cpu_share": ("1", "CPU time over wall time of the generator's client"),
    "generator_drops": ("1", "datagrams that the sockets of UAC and UAS refused"),
    "link_drops": ("1", "packets that the interfaces of all hosts dropped"),
    "ledger_residual": (
        "1",
        "sent datagrams that no other count explains, the larger number of both directions",
    ),
    "requests_again_uac": ("1", "requests that the UAC sent again"),
    "requests_again_sps": (
        "1",
        "retransmitted requests that reached the SPS, including refused requests",
    ),
    "proxy": ("", "program of the SUT"),
    "transport": ("", "udp or tcp"),
    "deployment": ("", "arrangement of workers, sockets, instances and dispatcher"),
    "clocksource": ("", "clock source of the SPS"),
    "grade": ("", "valid, suspect or invalid: the verdict of the run"),
    "valid": ("1", "1: the run is valid or suspect; 0: it is invalid, see findings"),
    "findings": ("", "JSON: broken rules of the verdict, each with value, grade and limit"),
    "mode_label": ("", "name of the mode as it was applied on this kernel"),
    "scheduler_family": ("", "CFS or EEVDF, and the place of the settings in the kernel"),
    "mode_settings": (
        "",
        "JSON: translated (whether the kernel's scheduler is not the papers'), steps (setting, "
        "asked, place, applied, unavailable), in_force (place: value)",
    ),
    "k_sockq_alone": (
        "us",
        "mean K_sockq of messages that arrived at an empty SPS: the time to wake the worker and to dequeue",
    ),
    "k_sockq_alone_n": ("1", "messages that arrived at an empty SPS"),
    "busy_periods": ("1", "number of periods during which the SPS always held a message"),
    "busy_periods_effective": (
        "1",
        "effective number of busy periods: the squared sum of their lengths, divided by the sum of their squared "
        "lengths",
    ),
    "busy_longest_s": ("s", "length of the longest busy period"),
    "busy_longest_share": (
        "1",
        "share of the longest busy period in the time from the first arrival to the last departure",
    ),
    "probe_mode": ("", "exact, tracepoint, stream, preload, off or simulated"),
    "kernel": ("", "kernel release of the SPS"),
    "started_at": ("", "UTC, ISO 8601"),
    "record": ("", "SHA-256 of the record from which these numbers were computed"),
}


def describe(ds: xr.Dataset) -> xr.Dataset:
    """Add unit, name and definition to every variable of a summary."""
    names = {
        "mean": "mean",
        "sd": "standard deviation",
        "n": "number of messages that have a value",
    }
    names |= {f"p{q}": f"{q}th percentile" for q in (50, 95, 99)}
    # ds[name] would create a DataArray, which takes longer than the rest of this function.
    variables = ds.variables
    for quantity in SUMMARY_TIMES:
        definition = INTERVALS[quantity] if quantity != "k_rcv" else "t_sip_in - t_arr"
        for statistic in STATISTICS:
            variables[f"{quantity}_{statistic}"].attrs = {
                "long_name": f"{quantity}: {names[statistic]}",
                "units": "1" if statistic == "n" else "us",
                "definition": definition,
            }
    for name, (units, definition) in RUN_LEVEL.items():
        variables[name].attrs = {"long_name": definition, "definition": definition}
        if units:
            variables[name].attrs["units"] = units
    variables["count"].attrs = {
        "long_name": "messages received",
        "units": "1",
        "definition": "rows of messages.nc; 'all' includes retransmissions and other messages",
    }
    variables["drops"].attrs = {
        "long_name": "datagrams refused by the full socket queue",
        "units": "1",
        "definition": "drops of messages.nc; the second arrival of a refused datagram is a retransmission",
    }
    variables[HISTOGRAM].attrs = {
        "long_name": "messages by time",
        "units": "1",
        "definition": f"bin i ends at ((1 + e) / (1 - e))^i ns, e = {histogram.RELATIVE_ERROR}",
    }
    variables["cps"].attrs = {"long_name": "offered calls per second", "units": "s-1"}
    return ds
