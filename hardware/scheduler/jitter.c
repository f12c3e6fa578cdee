// SPDX-License-Identifier: MIT
/*
 * jitter: what an idle CPU's time is interrupted by, as a program on it sees it.
 *
 * USAGE
 *   jitter SECONDS        one JSON object on stdout; hold it to one CPU with taskset
 *
 * HOW
 *   Reads CLOCK_MONOTONIC in a loop. Two readings more than 1 us apart are a gap: an interrupt, another task, the
 *   hypervisor. Runs as an ordinary task, as the proxy's workers do. SEE Documentation/trace/osnoise-tracer.rst
 *
 * OUTPUT
 *   cpu           CPU at the end; cpu_changes: how often it was another one
 *   duration_ns   time looked at
 *   reads         clock readings in it; duration_ns / reads is the finest gap that could be seen
 *   gaps_at_ns, gaps_ns   start since the beginning, and length, of the first MOST_GAPS gaps
 *   gaps_unlisted how many more there were
 *
 * OVERHEAD
 *   One CPU, for that long.
 *
 * DOES NOT SEE
 *   What slows the CPU down without stopping the program: caches, memory, a busy SMT sibling, frequency.
 */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GAP_NS    1000
#define MOST_GAPS 200000
#define NS        1000000000ULL
#define LONGEST_S 60

struct gap {
	uint64_t at;
	uint64_t length;
};

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

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
		fprintf(stderr, "jitter: usage: jitter SECONDS, above 0 and up to %d\n", LONGEST_S);
		return 1;
	}
	if (!gaps) {
		fprintf(stderr, "jitter: %s\n", strerror(errno));
		return 1;
	}
	/* a page that is touched first in the loop would be a gap of our own */
	memset(gaps, 1, MOST_GAPS * sizeof(*gaps));
	start = last = now();
	stop = start + (uint64_t)(seconds * (double)NS);
	while (last < stop) {
		uint64_t t = now();

		reads++;
		if (t - last > GAP_NS) {
			int here = sched_getcpu();

			changes += here != cpu;
			cpu = here;
			if (listed < MOST_GAPS)
				gaps[listed++] = (struct gap){ last - start, t - last };
			else
				unlisted++;
			t = now();
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
