// SPDX-License-Identifier: MIT
/*
 * sipload is a client that makes SIP calls on a schedule, and a server that answers them.
 *
 * USAGE
 *   sipload uac --local A:P --remote A:P --schedule FILE --calls-file FILE --report FILE
 *               [--transport udp|tcp] [--tcp-connections per-call|N] [--hold-ms X|exp:X]
 *               [--drain-s X] [--late-ms X] [--spin-us X|always] [common options]
 *   sipload uas --local A:P --report FILE [--transport udp|tcp] [--ring-ms X] [--spin-us X|always] [--ready FILE]
 *               [common options]
 *   sipload schedule --output FILE --rate CPS (--calls N | --blocks FILE) [--law exponential|constant] [--seed N]
 *   sipload version
 *   common: [--threads N] [--cpus LIST] [--retransmissions on|off] [--buffer-bytes N]
 *           [--fifo PRIORITY]
 *   Defaults: udp, per-call, hold 0, seed 1, drain 40 s, late 500 ms, spin 100 us (uas: 0), 1 thread,
 *   no pinning, retransmissions on, buffers 4194304 bytes, exponential, no priority.
 *
 * WHAT IT DOES
 *   `uac` starts call i at t0 + the schedule's offset i (schedule.h), on CLOCK_MONOTONIC. If a call is late, `uac`
 *   starts it at once and records the lateness. Later calls keep their start times. The run ends in one of three ways: 100 ms have
 *   passed since the last call ended, --drain-s have passed since the last scheduled start, or SIGINT or SIGTERM came. Then `uac`
 *   writes one record per call (calls.h) and a report (report.h). Random hold times are computed from the random number of
 *   each call in the schedule (schedule.h).
 *   `uas` answers INVITE with 180 and, after --ring-ms, with 200. `uas` answers BYE with 200. After SIGINT or SIGTERM,
 *   `uas` writes a report. The file of --ready appears when `uas` is ready to answer.
 *   `schedule` writes a schedule and prints {"calls":N,"distinct":N,"first_ns":N,"last_ns":N}: the number of calls, the
 *   number of different calls, and the first and last start after t0. The file of --blocks has one line per window,
 *   `<block> <length in ns> [<instance>]`. The calls of a block are repeated in each of its windows.
 *   uac.h and uas.h describe the transactions, which follow RFC 3261.
 *   The exit code is 0 if the run was performed, even if calls failed. The exit code is 1 with one line on stderr for
 *   an error, and 2 for wrong usage.
 *
 * TIMING
 *   --spin-us: before each deadline, `uac` polls for this time instead of sleeping, because a sleep may end late.
 *   `uas` polls for this time after each datagram. `always` never sleeps and uses a whole CPU. A send to a sleeping receiver
 * wakes the receiver's CPU. On a virtual machine, such a send took about 13 us instead of 2 us. With such sends, gaps
 * of less than 13 us between calls are impossible, and at 2,000 cps the Kolmogorov-Smirnov distance grows by 0.01.
 *   --fifo requests SCHED_FIFO, so that no other program on a shared CPU delays a deadline. If the kernel refuses, the run
 *   continues with the normal policy. `scheduler` in the report has the policy.
 *   --threads: the threads of `uac` bind the ports P, P+1, ..., and thread i mod N makes call i. The threads of `uas` share
 *   a socket.
 *
 * LIMITS
 *   sipload supports only IPv4. If a TCP connection is lost, its calls are lost. The next call opens a lost shared
 *   connection again. Messages wait while a send buffer is full, and the report has the waiting time. Over TCP, `uas` has
 *   one thread and answers on the connection of the request. With one connection per call, the client closes the connection,
 *   and its port is blocked for 60 s unless net.ipv4.tcp_tw_reuse is 1. The program raises the limit of descriptors to the
 *   hard limit.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "client.h"
#include "options.h"
#include "process.h"
#include "report.h"
#include "../common/schedule.h"
#include "server.h"

#define VERSION "sipload 1"

/* Check that a file can be written, so that an error appears before the run instead of after it. */
static bool can_write(const char *path)
{
	FILE *file = partial_open(path);

	if (file)
		partial_drop(file, path);
	else
		fail(path, strerror(errno));
	return file;
}

static int client_command(int argc, char **argv)
{
	struct options o;

	parse_client_options(&o, argc, argv);
	prepare_process(o.fifo);
	return can_write(o.report) && can_write(o.calls_file) ? run_client(&o) : EXIT_BAD;
}

static int server_command(int argc, char **argv)
{
	struct options o;

	parse_server_options(&o, argc, argv);
	prepare_process(o.fifo);
	return can_write(o.report) && (!o.ready || can_write(o.ready)) ? run_server(&o) : EXIT_BAD;
}

static void describe(const struct schedule *schedule)
{
	uint64_t count = schedule->header.count;

	printf("{\"calls\":%" PRIu64 ",\"distinct\":%" PRIu64 ",\"first_ns\":%" PRIu64 ",\"last_ns\":%" PRIu64
	       "}\n",
	       count, schedule->header.distinct, schedule->calls[0].offset_ns,
	       schedule->calls[count - 1].offset_ns);
}

static int schedule_command(int argc, char **argv)
{
	struct schedule_options o;
	struct schedule schedule;
	const char *wrong;

	parse_schedule_options(&o, argc, argv);
	wrong = o.blocks ? schedule_draw_blocks(&schedule, o.law, o.rate_cps, o.blocks, o.seed)
			 : schedule_draw(&schedule, o.law, o.rate_cps, o.calls, o.seed);
	if (wrong) {
		fail(o.blocks ? o.blocks : o.output, wrong);
	} else {
		wrong = schedule_write(&schedule, o.output);
		if (wrong)
			fail(o.output, wrong);
		else
			describe(&schedule);
	}
	schedule_free(&schedule);
	return wrong ? EXIT_BAD : EXIT_GOOD;
}

int main(int argc, char **argv)
{
	const char *command = argc > 1 ? argv[1] : "";

	if (!strcmp(command, "uac"))
		return client_command(argc - 1, argv + 1);
	if (!strcmp(command, "uas"))
		return server_command(argc - 1, argv + 1);
	if (!strcmp(command, "schedule"))
		return schedule_command(argc - 1, argv + 1);
	if (!strcmp(command, "version")) {
		puts(VERSION);
		return EXIT_GOOD;
	}
	usage(NULL, "a command is needed: uac, uas, schedule or version");
}
