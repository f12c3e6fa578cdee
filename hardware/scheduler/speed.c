// SPDX-License-Identifier: MIT
/*
 * The speed index: the number of fixed work steps per microsecond of CPU time.
 *
 * A step reads the next element of a ring that visits 64 KiB of memory in random order, and mixes the element into a number
 * by shifts and a multiplication. Each operation depends on the result of the previous operation. Never change the steps,
 * because old and new indexes would no longer be comparable. The index does not depend on memory outside the caches, other
 * cores, or vector units.
 */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <string.h>
#include "../common/clock.h"
#include "speed.h"

#define RING  16384
#define ROUND 65536 /* number of steps between two readings of the clock */

static uint32_t ring[RING];
/* The result of the work. The program stores the result, so that the compiler does not remove the computation. */
static volatile uint64_t sink;

/* Link all elements into one random cycle (Sattolo's algorithm), so that the work visits every element. */
static void make_ring(void)
{
	uint64_t state = 1;

	for (uint32_t i = 0; i < RING; i++)
		ring[i] = i;
	for (uint32_t i = RING - 1; i; i--) {
		uint32_t other, kept = ring[i];

		state = state * 6364136223846793005ULL + 1442695040888963407ULL;
		other = (uint32_t)((state >> 33) % i);
		ring[i] = ring[other];
		ring[other] = kept;
	}
}

static void work(uint32_t *at, uint64_t *mixed)
{
	uint64_t x = *mixed;
	uint32_t i = *at;

	for (unsigned step = 0; step < ROUND; step++) {
		i = ring[i];
		x = (x ^ x >> 29 ^ i) * 0x9e3779b97f4a7c15ULL;
	}
	*at = i;
	*mixed = x;
}

static void stay_here(void)
{
	cpu_set_t here;

	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	/* Ignore a failure. The kernel may then move the program to another CPU during the measurement. */
	sched_setaffinity(0, sizeof(here), &here);
}

enum exit_code speed(double seconds)
{
	uint64_t wanted_ns = (uint64_t)(seconds * (double)NS_PER_S), steps = 0, mixed = 1, cpu, wall, cpu_ns;
	uint32_t at = 0;

	stay_here();
	make_ring();
	/* Run the work once to fill the caches before the measurement. */
	work(&at, &mixed);
	cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID);
	wall = clock_ns();
	do {
		work(&at, &mixed);
		steps += ROUND;
		cpu_ns = read_clock(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	} while (cpu_ns < wanted_ns);
	sink = mixed;
	printf("{\"work\":%" PRIu64 ",\"cpu_ns\":%" PRIu64 ",\"wall_ns\":%" PRIu64 ",\"index\":%.3f}\n",
	       steps, cpu_ns, clock_ns() - wall, (double)steps * (double)NS_PER_US / (double)cpu_ns);
	return fflush(stdout) ? fail("standard output", strerror(errno)) : EXIT_GOOD;
}
