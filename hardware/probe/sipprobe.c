// SPDX-License-Identifier: MIT
/*
 * sipprobe: where the time of each SIP message goes in a proxy server, from the driver to the driver.
 *
 * USAGE
 *   sipprobe check [--port N]
 *   sipprobe run --port N --comm NAME --output TRACE --report JSON --ready FILE
 *                [--control SOCKET] [--mode auto|exact|tracepoint|stream] [--peer-port N]
 *                [--ring-bytes N] [--snippet-bytes N] [--verbose]
 *
 * WHAT IT SHOWS
 *   One record for each datagram that a worker thread received on the UDP port, one for each that the full
 *   socket queue refused (trace.h). `run` watches the network namespace it is started in, and there the
 *   threads of all processes called NAME; it looks for new ones each second, and on SIGUSR1.
 *   Mode `stream` is for SIP over TCP: one record for each message that a worker read whole, on a connection to the
 *   port or from here to --peer-port of another host.
 *   --ready FILE gets a line `ready <ns>` when everything is attached, and `fresh <ns>` after SIGUSR1, which
 *   discards what was measured so far. SIGTERM or SIGINT ends the run: the ring is drained, the report
 *   written.
 *   --control SOCKET is a unix socket, removed at the end, that takes the lines `off` and `on` and answers each
 *   with `ok`, or a line that begins with `error:`, when it is done. `off` lets go of every hook, the slow path
 *   of system calls with them; what has arrived is served first, for 50 ms at most. `on` attaches again.
 *   Messages that arrive in between are not there: neither in the trace nor in a counter. The report counts
 *   the switches, the time off, and what an `off` cut short: arrivals that no worker had received, and
 *   services that had not ended. A message in service at `on` is not there either.
 *   Here `off` takes 2 to 5 ms and `on` 2 to 16 ms: the kernel waits for a grace period of RCU where a hook
 *   was let go of just before.
 *   `check` tells which hooks this kernel offers, by loading and attaching each for a moment.
 *   Exit code: 0 good, 1 not (one line on stderr says why), 2 wrong usage.
 *
 * HOW TO READ IT
 *   K_rcv = t_sip_in - t_arr            K_stack = t_stack - t_arr
 *   K_sockq = t_sockq - t_stack         K_copy = t_sip_in - t_sockq
 *   T_sip = t_sip_out - t_sip_in - in_cost_ns
 *   K_snd = t_dep - t_sip_out - out_cost_ns
 *   The two costs are the probe's own work at the start of the interval.
 *   Mode `exact` measures all six stamps with fentry and fexit. Mode `tracepoint`, for kernels that refuse
 *   those, gives a lower bound of t_sockq. `auto` takes the better one that loads; the report says which.
 *   Mode `stream` measures all six, of bytes: docs/methodology.md. It counts descriptors that the proxy's processes
 *   hand to each other, and the time in the calls that do.
 *   In the report, `lost` other than 0 means that the trace is incomplete; so do `threads_untraced` and,
 *   for the statistics of a kind, `unclassified`. `unmatched` are records without an arrival. `recursion_misses`
 *   may have cost a stamp or a record: compare `records` with what the kernel counts, as sipsched does.
 *
 * OVERHEAD
 *   Tracepoint mode, stateful Kamailio, 1000 cps, 2 shared CPUs: 0.7 to 1.3 us of the proxy's CPU time a
 *   message, +3 to +6 % (medians over 12 neighbouring windows with and without, three sessions; comparing the
 *   medians of all windows gives +5 to +12 %, for the machine is noisy). Part of it is fixed: any system call
 *   tracepoint puts the calls of every task on the slow path. The writer takes 0.4 us a message at 20,000
 *   messages/s and 2 us at 1,000 (it polls and scans), on whatever CPU it runs: pin it away from the proxy.
 *   Exact mode: not measured.
 *
 * WHAT IT DOES NOT SEE
 *   TLS, IPv6, IP options, fragments; recvmmsg, sendmmsg, io_uring and MSG_PEEK; proxies that hand a message to
 *   another thread; messages a new thread receives before it is found.
 *   In tracepoint mode, a datagram whose first 256 bytes the driver left in page fragments is unmatched, and
 *   so is the ninth of identical ones that wait at the same time; before 6.10, of datagrams that the kernel
 *   delivers as a list, a drop has the arrival of the last or none.
 *   A port behind a bridge of the same namespace is counted twice as arrived. A Call-ID or CSeq past
 *   --snippet-bytes is not found: counted as `unclassified`.
 *
 * KERNELS
 *   5.10 and later with BTF. Tracepoint mode needs sk_data_ready (6.3) and, for a drop's Call-ID, 6.10. Mode stream
 *   was run on 6.18 alone; its hooks are in all of them.
 *
 * FILES
 *   options.c                  the command line
 *   check.c                    `check`
 *   run.c                      `run`, from the first hook to the report
 *   hooks.c, attach.c          what this kernel offers; loading and attaching it
 *   control.c, recording.c     the socket for commands; recording off and on
 *   workers.c                  the proxy's threads
 *   records.c, trace_file.c    from the ring to the trace
 *   counters.c, report.c       what was counted, and the report
 *   json.c, system.c           what several of them need
 *   streams.c                  messages in streams, by ../dispatcher/frame.c
 *   sipprobe.bpf.c, stream.bpf.c, common.bpf.h, probe.h
 *                              the kernel's side, of datagrams and of streams, and what both sides share
 */
#include <stdio.h>
#include <string.h>
#include "attach.h"
#include "check.h"
#include "options.h"
#include "run.h"
#include "system.h"

int main(int argc, char **argv)
{
	struct options options;

	if (argc < 2 || (strcmp(argv[1], "check") != 0 && strcmp(argv[1], "run") != 0))
		return usage();
	if (!parse_options(argc - 1, argv + 1, &options))
		return EXIT_USAGE;
	set_libbpf_messages(options.verbose);
	if (!strcmp(argv[1], "check"))
		return check(&options);
	if (!options.comm || !options.output || !options.report || !options.ready) {
		complain("run needs --comm, --output, --report and --ready");
		return EXIT_USAGE;
	}
	return run_probe(&options);
}
