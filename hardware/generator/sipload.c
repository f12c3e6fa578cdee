// SPDX-License-Identifier: MIT
/*
 * sipload: SIP calls on a schedule, and the server that answers them.
 *
 * USAGE
 *   sipload uac --local A:P --remote A:P --schedule FILE --calls-file FILE --report FILE
 *               [--transport udp|tcp] [--tcp-connections per-call|N] [--hold-ms X|exp:X]
 *               [--drain-s X] [--linger-ms X] [--late-ms X] [--spin-us X|always] [common options]
 *   sipload uas --local A:P --report FILE [--transport udp|tcp] [--ring-ms X] [--spin-us X|always] [--ready FILE]
 *               [common options]
 *   sipload schedule --output FILE (--rate CPS (--calls N | --blocks FILE) [--law exponential|constant]
 *                                   | --from-text FILE) [--seed N]
 *   sipload version
 *   common: [--threads N] [--cpus LIST] [--retransmissions on|off] [--t1-ms X] [--t2-ms X] [--t4-ms X]
 *           [--buffer-bytes N] [--fifo PRIORITY]
 *   Defaults: udp, per-call, hold 0, seed 1, drain 40 s, linger 100 ms, late 500 ms, spin 100 us (uas: 0), 1 thread,
 *   no pinning, retransmissions on, T1 500 ms, T2 4 s, T4 5 s, buffers 4194304 bytes, exponential, no priority.
 *
 * WHAT IT DOES
 *   `uac` starts call i at t0 + the schedule's offset i (schedule.h), on CLOCK_MONOTONIC; a call that is late is
 *   started at once and the lateness is recorded, never handed on to the next. It ends when all calls are over
 *   and --linger-ms have passed, --drain-s after the last intended start, or by SIGINT or SIGTERM, and then
 *   writes one record a call (calls.h) and a report (report.h). Times of `hold` are drawn from the number that
 *   the schedule has for each call (schedule.h).
 *   `uas` answers 180, after --ring-ms 200, and 200 to BYE; it ends by SIGINT or SIGTERM, with a report.
 *   --ready FILE gets a line `ready <ns>` when it answers.
 *   `schedule` draws a schedule and prints {"calls":N,"distinct":N,"first_ns":N,"last_ns":N}: how many there
 *   are, how many of them were drawn, and when after t0 the first and the last start. --blocks FILE has a line a
 *   window, `<block> <length in ns>`: the calls of a block are played in each of its windows.
 *   The transactions are those of RFC 3261: uac.h, uas.h.
 *   Exit code: 0 good, whatever became of the calls; 1 not (one line on stderr says why); 2 wrong usage.
 *
 * TIMING
 *   --spin-us is the time before each deadline during which `uac` polls instead of sleeping: the sleep's end is
 *   late by about that. Of `uas` it is the time it polls on after each datagram. `always` never sleeps and takes
 *   a whole CPU. A send to a sleeping receiver must wake its CPU, which on a virtual machine took about 13 us
 *   instead of 2: gaps shorter than that cannot leave the client, and the KS distance at 2,000 cps grows by .01.
 *   --fifo asks for SCHED_FIFO, so that nothing else on a shared CPU delays a deadline; where that is refused it
 *   runs without, and the report's `scheduler` says which.
 *   Threads: those of `uac` bind P, P+1, ...; call i is made by thread i mod N. Those of `uas` share a socket.
 *
 * LIMITS
 *   IPv4. TCP: a call whose connection is lost is lost, and a shared one is opened again for the next call; a send
 *   buffer that is full makes messages wait, and the report says how long; `uas` answers on the request's connection
 *   only and has one thread. With a connection a call, the client closes:
 *   ports wait 60 s, unless net.ipv4.tcp_tw_reuse is 1; the descriptor limit is raised to the hard limit.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "client.h"
#include "options.h"
#include "process.h"
#include "report.h"
#include "schedule.h"
#include "server.h"

#define VERSION "sipload 1"

/* Found out before the run rather than after it. */
static bool can_write(const char *path)
{
	FILE *file = path ? report_open(path) : NULL;

	if (file)
		fclose(file);
	else if (path)
		fail(path, strerror(errno));
	return file || !path;
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
	return can_write(o.report) && can_write(o.ready) ? run_server(&o) : EXIT_BAD;
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
	wrong = o.text     ? schedule_read_text(&schedule, o.text, o.seed)
		: o.blocks ? schedule_draw_blocks(&schedule, o.law, o.rate_cps, o.blocks, o.seed)
			   : schedule_draw(&schedule, o.law, o.rate_cps, o.calls, o.seed);
	if (wrong) {
		fail(o.text ? o.text : o.blocks ? o.blocks : o.output, wrong);
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
