/* SPDX-License-Identifier: MIT */
/*
 * A histogram of times with 32 buckets per power of two, so a quantile is at most 3 % too large.
 */
#ifndef SIPSCHED_HISTOGRAM_H
#define SIPSCHED_HISTOGRAM_H
#include <stdint.h>

#define HISTOGRAM_BITS    5
#define HISTOGRAM_BUCKETS ((64 - HISTOGRAM_BITS + 1) << HISTOGRAM_BITS)

struct histogram {
	uint64_t count;
	uint64_t max_ns;
	uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *histogram, uint64_t ns);
void histogram_merge(struct histogram *sum, const struct histogram *one);

/* Return the quantile of the times for `share`, a number from 0 to 1. Return 0 for an empty histogram. */
uint64_t histogram_quantile(const struct histogram *histogram, double share);
#endif
