// SPDX-License-Identifier: MIT
/*
 * competitor competes with the proxy for its CPUs: at the beginning of each period, it computes for a fixed CPU time.
 *
 * USAGE
 *   competitor NAME BUSY_US PERIOD_US     runs until SIGINT or SIGTERM; pin it with taskset
 *
 * HOW IT WORKS
 *   The kernel shows the task under NAME, of at most 15 characters. The competitor keeps the scheduling policy and the
 *   nice value with which it was started. The competitor measures its own CPU time, so it does the same work even if
 *   other tasks preempt it. If its work lasts longer than a period, it skips the periods whose beginnings it missed.
 *   If BUSY_US equals PERIOD_US, the competitor computes all the time.
 */
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include "../common/arguments.h"
#include "../common/clock.h"
#include "../common/program.h"

#define NAME_MAX_LENGTH 15
#define LONGEST_US      10000000
#define LOOPS_PER_LOOK  200 /* number of loops between two clock readings; 200 loops take less than 1 us */

static void compute(uint64_t busy_ns)
{
	uint64_t start = read_clock(CLOCK_THREAD_CPUTIME_ID);

	do {
		for (int i = 0; i < LOOPS_PER_LOOK; i++)
			__asm__ volatile("" ::: "memory");
	} while (read_clock(CLOCK_THREAD_CPUTIME_ID) - start < busy_ns);
}

static void sleep_until(uint64_t ns)
{
	struct timespec until = { .tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR && !stop_asked)
		;
}

int main(int argc, char **argv)
{
	long long busy_us, period_us;
	uint64_t begin, period_ns;

	if (argc != 4 || !*argv[1] || strlen(argv[1]) > NAME_MAX_LENGTH ||
	    !parse_whole(argv[3], 1, LONGEST_US, &period_us) ||
	    !parse_whole(argv[2], 1, period_us, &busy_us)) {
		complain("usage: competitor NAME BUSY_US PERIOD_US; NAME has 1 to %d characters, BUSY_US "
			 "is 1 to "
			 "PERIOD_US, and PERIOD_US is 1 to %d",
			 NAME_MAX_LENGTH, LONGEST_US);
		return EXIT_USAGE;
	}
	if (prctl(PR_SET_NAME, argv[1]))
		return fail("name", strerror(errno));
	catch_signals();
	period_ns = (uint64_t)period_us * NS_PER_US;
	begin = clock_ns();
	while (!stop_asked) {
		compute((uint64_t)busy_us * NS_PER_US);
		if (busy_us == period_us)
			continue;
		begin += (1 + (clock_ns() - begin) / period_ns) * period_ns;
		sleep_until(begin);
	}
	return EXIT_GOOD;
}
