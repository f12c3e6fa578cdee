// SPDX-License-Identifier: MIT
/*
 * jitter measures the interruptions of a program on an idle CPU.
 *
 * USAGE
 *   jitter SECONDS        prints one JSON object; pin it to one CPU with taskset
 *
 * HOW IT WORKS
 *   jitter reads CLOCK_MONOTONIC in a loop. A gap is a difference of more than 1 us between two readings. An interrupt,
 *   another task, or the hypervisor can cause a gap. jitter has the policy of an ordinary task, as the proxy's workers have.
 *   SEE Documentation/trace/osnoise-tracer.rst
 *
 * OUTPUT
 *   cpu           CPU at the end
 *   cpu_changes   number of moves to another CPU
 *   duration_ns   measured time
 *   reads         number of clock readings; duration_ns / reads is the resolution
 *   gaps_at_ns, gaps_ns   for the first MOST_GAPS gaps: the time from the beginning to each gap, and the gap's length
 *   gaps_unlisted number of further gaps
 *
 * LIMITS
 *   jitter uses one CPU for the whole time. jitter does not see causes that slow the CPU down without stopping the
 *   program: caches, memory, a busy SMT sibling, the CPU's frequency.
 */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../common/clock.h"

#define GAP_NS    1000
#define MOST_GAPS 200000
#define LONGEST_S 60

struct gap {
	uint64_t at;
	uint64_t length;
};

static void print_gaps(const char *name, const struct gap *gaps, size_t n, int lengths)
{
	printf(",\n\"%s\":[", name);
	for (size_t i = 0; i < n; i++)
		printf("%s%" PRIu64, i ? "," : "", lengths ? gaps[i].length : gaps[i].at);
	printf("]");
}

int main(int argc, char **argv)
{
	char *end = NULL;
	double seconds = argc == 2 ? strtod(argv[1], &end) : 0;
	struct gap *gaps = calloc(MOST_GAPS, sizeof(*gaps));
	uint64_t start, last, stop, reads = 0, changes = 0;
	size_t listed = 0, unlisted = 0;
	int cpu = sched_getcpu();

	if (!end || *end || !(seconds > 0 && seconds <= LONGEST_S)) {
		fprintf(stderr, "jitter: usage: jitter SECONDS; SECONDS is above 0 and at most %d\n",
			LONGEST_S);
		return 2;
	}
	if (!gaps) {
		fprintf(stderr, "jitter: %s\n", strerror(errno));
		return 1;
	}
	/* Write to all pages now, because a page fault in the loop would look like a gap. */
	memset(gaps, 1, MOST_GAPS * sizeof(*gaps));
	start = last = clock_ns();
	stop = start + (uint64_t)(seconds * (double)NS_PER_S);
	while (last < stop) {
		uint64_t t = clock_ns();

		reads++;
		if (t - last > GAP_NS) {
			int here = sched_getcpu();

			changes += here != cpu;
			cpu = here;
			if (listed < MOST_GAPS)
				gaps[listed++] = (struct gap){ last - start, t - last };
			else
				unlisted++;
			t = clock_ns();
		}
		last = t;
	}
	printf("{\"cpu\":%d,\"cpu_changes\":%" PRIu64 ",\"threshold_ns\":%d,\"duration_ns\":%" PRIu64
	       ",\"reads\":%" PRIu64 ",\"gaps_unlisted\":%zu",
	       cpu, changes, GAP_NS, last - start, reads, unlisted);
	print_gaps("gaps_at_ns", gaps, listed, 0);
	print_gaps("gaps_ns", gaps, listed, 1);
	printf("}\n");
	free(gaps);
	return 0;
}
