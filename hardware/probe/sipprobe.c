// SPDX-License-Identifier: MIT
/*
 * sipprobe measures where a proxy server spends the time of each SIP message, from the network driver back to the driver.
 *
 * USAGE
 *   sipprobe check [--port N]
 *   sipprobe run --port N --comm NAME --output TRACE --report JSON --ready FILE
 *                [--control SOCKET] [--mode auto|exact|tracepoint|stream] [--peer-port N]
 *                [--ports N] [--ring-bytes N] [--snippet-bytes N] [--verbose]
 *   sipprobe watch --port N --comm NAME [--netns FILE] [--one-in N]
 *                [--mode auto|exact|tracepoint|stream] [--peer-port N] [--ports N] [--ring-bytes N]
 *   sipprobe histograms --port N [--ports N] [--netns FILE]
 *   sipprobe counters NAME NETNS [TCP_PORT]
 *
 * WHAT IT SHOWS
 *   The trace has one record per datagram that a worker received on the UDP port, and one per datagram that the full socket
 *   queue refused (trace.h). `run` traces the threads of all processes called NAME in its own network namespace. sipprobe
 *   searches for new threads once a second, and at SIGUSR1.
 *   Mode `stream` is for SIP over TCP. Its trace has one record per message that a worker read completely, on a connection
 *   to the port, or on a connection from this host to --peer-port of another host.
 *   --ready FILE gets a line `ready <ns>` when all hooks are attached. The file gets a line `fresh <ns>` after SIGUSR1,
 *   which discards the measurements so far. At SIGTERM or SIGINT, sipprobe empties the ring, writes the report and
 *   exits.
 *   --control SOCKET is a unix socket, which sipprobe removes at its end. sipprobe accepts the lines `off` and `on` from
 *   this socket, and answers each line with `ok`, or with a line that begins with `error:`. At `off`, sipprobe waits at
 * most 50 ms until the workers have served all queued messages. Then sipprobe detaches every hook, so that system calls
 * take their fast path again. At `on`, sipprobe attaches the hooks again. The trace and all counters exclude messages
 * that arrive while recording is off, and messages in service at `on`. The report has the number of switches, the total
 * time without recording, and the number of messages that were incomplete at an `off`: arrivals that no worker had
 * received, and services that had not ended. `off` takes 2 to 5 ms and `on` 2 to 16 ms,
 *   because the kernel waits for a grace period of RCU after it has detached a hook.
 *   `watch` is for a proxy in production, and writes no file. The trace goes to stdout. Once a second, and at the end, stderr
 *   gets one line with counters as JSON. On stdin, `0` switches recording off, `1` switches it on, and the end of the input
 *   ends the program. `watch`, `histograms` and `counters` also end after two minutes without input, because the network to
 *   the reader of their output may be silent. --netns FILE, such as /proc/PID/ns/net, chooses the proxy's network namespace.
 *   `watch` also traces datagrams over IPv6. If a worker forwards no message of the same kind, `watch` uses the first message
 *   that the worker sends. The trace contains no number or text of a message: Call-ID and CSeq are hashed with a random key
 *   that is never written, and `kind` has the method or status. With --one-in N, the trace has the messages of one of N calls.
 *   `histograms` is also for a proxy in production, and counts the times of datagrams in the kernel, without a record
 *   per message. To keep system calls fast, `histograms` attaches no hook to system calls, and only three hooks
 *   (count.h, histograms.bpf.c).
 *   `counters` prints the kernel's counters of the processes NAME in the network namespace with the inode NETNS, of their
 *   control group, and of their host, each time it reads a line. `counters` attaches nothing (host.h).
 *   `check` loads and attaches each hook for a moment, and prints which hooks this kernel supports.
 *   The exit code is 0 on success, 1 with one line on stderr for an error, and 2 for wrong usage.
 *
 * HOW TO READ THE TRACE
 *   K_rcv = t_sip_in - t_arr            K_stack = t_stack - t_arr
 *   K_sockq = t_sockq - t_stack         K_copy = t_sip_in - t_sockq
 *   T_sip = t_sip_out - t_sip_in - in_cost_ns
 *   K_snd = t_dep - t_sip_out - out_cost_ns
 *   in_cost_ns and out_cost_ns are the durations of the probe's own work at the start of each interval.
 *   Mode `exact` measures all six timestamps with fentry and fexit. Mode `tracepoint` is for kernels that refuse fentry
 *   and fexit, and provides a lower bound of t_sockq. `auto` chooses the better mode that loads, and the report names
 *   this mode. Mode `stream` measures all six timestamps of bytes (docs/methodology/tcp.md). Mode `stream` also counts
 *   descriptors that the proxy's processes pass to each other, and the time of the system calls that pass them.
 *   The trace is incomplete if `lost` or `threads_untraced` of the report is not 0. If `unclassified` is not 0, the statistics
 *   of some kind of message are incomplete. `unmatched` counts records without an arrival time. Each skipped BPF program in
 *   `recursion_misses` may have cost a timestamp or a record, so sipsched compares `records` with the kernel's counters.
 *
 * OVERHEAD
 *   Tracepoint mode costs 0.7 to 1.3 us of the proxy's CPU time per message, which is +3 to +6 % (stateful Kamailio,
 *   1000 cps, 2 shared CPUs). These are medians over 12 pairs of adjacent windows, with and without the probe, in three
 *   sessions. Medians of all windows are +5 to +12 % on this noisy machine. A part of the cost does not depend on the load: a
 *   tracepoint of system calls makes the system calls of every task take the slow path. The probe's writer needs 0.4 us per
 *   message at 20,000 messages/s, and 2 us at 1,000, because it polls and scans. Pin the writer to a CPU that the proxy does
 *   not use. Exact mode was not measured.
 *
 * WHAT IT DOES NOT SEE
 *   sipprobe does not see TLS, packets with IP options, and fragments. `run` does not see IPv6. sipprobe does not see the
 *   calls recvmmsg, sendmmsg, io_uring and MSG_PEEK. sipprobe does not support proxies that pass a message to another
 *   thread, and misses messages that a new thread receives before the probe finds the thread. In tracepoint
 *   mode, a datagram is unmatched if the driver left its first 256 bytes in page fragments, or if eight identical datagrams
 *   already wait. Before Linux 6.10, a drop in a list of datagrams has the arrival time of the list's last datagram, or no
 *   arrival time. A datagram through a bridge of the same namespace counts twice in `arrived`. A message whose Call-ID or
 *   CSeq is beyond --snippet-bytes counts as `unclassified`.
 *
 * KERNELS
 *   sipprobe runs on Linux 5.10 and later with BTF. Tracepoint mode needs sk_data_ready (6.3), and 6.10 for the Call-ID of a
 *   drop. Mode stream was only tested on 6.18, but all these kernels have its hooks.
 *
 * FILES
 *   options.c                  the command line
 *   check.c                    `check`
 *   run.c                      `run`, from the first hook to the report
 *   hooks.c, attach.c          the hooks that this kernel supports; loading and attaching hooks
 *   control.c, recording.c     the socket for commands; switching the recording off and on
 *   workers.c                  the proxy's threads
 *   records.c, trace_file.c    from the ring to the trace
 *   counters.c, report.c       counters and the report
 *   system.c                   files of /proc and namespaces
 *   count.c, host.c            `histograms` and `counters`
 *   streams.c                  messages in streams, by ../common/frame.c
 *   sipprobe.bpf.c, stream.bpf.c, histograms.bpf.c, *.bpf.h, probe.h, histograms.h
 *                              the BPF programs, and their interface to user space
 */
#include <stdio.h>
#include <string.h>
#include "attach.h"
#include "check.h"
#include "count.h"
#include "host.h"
#include "options.h"
#include "run.h"
#include "system.h"

int main(int argc, char **argv)
{
	struct options options;

	if (argc >= 2 && !strcmp(argv[1], "counters"))
		return print_counters(argc - 2, argv + 2);
	if (argc < 2 || (strcmp(argv[1], "check") != 0 && strcmp(argv[1], "run") != 0 &&
			 strcmp(argv[1], "watch") != 0 && strcmp(argv[1], "histograms") != 0))
		return usage();
	if (!parse_options(argc - 1, argv + 1, &options))
		return EXIT_USAGE;
	options.watch = !strcmp(argv[1], "watch");
	set_libbpf_messages(options.verbose);
	if (!strcmp(argv[1], "check"))
		return check(&options);
	if (!strcmp(argv[1], "histograms"))
		return run_histograms(&options);
	if (options.watch) {
		if (!options.comm || options.output || options.report || options.ready || options.control) {
			complain("watch needs --comm, and writes no file");
			return EXIT_USAGE;
		}
	} else if (!options.comm || !options.output || !options.report || !options.ready) {
		complain("run needs --comm, --output, --report and --ready");
		return EXIT_USAGE;
	}
	return run_probe(&options);
}
