/* SPDX-License-Identifier: MIT */
#ifndef SIPSCHED_CLOCK_H
#define SIPSCHED_CLOCK_H
#include <stdint.h>
#include <time.h>

#define NS_PER_US 1000ULL
#define NS_PER_MS 1000000ULL
#define NS_PER_S  1000000000ULL

/* Return the time of `clock` in ns. */
static inline uint64_t read_clock(clockid_t clock)
{
	struct timespec t = { 0 };

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Return the time of CLOCK_MONOTONIC in ns. All times in traces, logs and reports are times of CLOCK_MONOTONIC. */
static inline uint64_t clock_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}
#endif
