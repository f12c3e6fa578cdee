// SPDX-License-Identifier: MIT
#include "histogram.h"

#define LINEAR (1ULL << HISTOGRAM_BITS) /* times below 2 * LINEAR ns have one bucket per ns */

static unsigned bucket_of(uint64_t ns)
{
	unsigned shift;

	if (ns < LINEAR)
		return (unsigned)ns;
	shift = 63U - (unsigned)__builtin_clzll(ns) - HISTOGRAM_BITS;
	return (unsigned)(((uint64_t)shift << HISTOGRAM_BITS) + (ns >> shift));
}

static uint64_t largest_in(unsigned bucket)
{
	unsigned shift;

	if (bucket < LINEAR)
		return bucket;
	shift = (bucket >> HISTOGRAM_BITS) - 1;
	return ((LINEAR + (bucket & (LINEAR - 1)) + 1) << shift) - 1;
}

void histogram_add(struct histogram *histogram, uint64_t ns)
{
	histogram->buckets[bucket_of(ns)]++;
	histogram->count++;
	if (ns > histogram->max_ns)
		histogram->max_ns = ns;
}

void histogram_merge(struct histogram *sum, const struct histogram *one)
{
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		sum->buckets[i] += one->buckets[i];
	sum->count += one->count;
	if (one->max_ns > sum->max_ns)
		sum->max_ns = one->max_ns;
}

uint64_t histogram_quantile(const struct histogram *histogram, double share)
{
	double wanted = share * (double)histogram->count;
	uint64_t below = 0;

	for (unsigned i = 0; histogram->count && i < HISTOGRAM_BUCKETS; i++) {
		below += histogram->buckets[i];
		if (below && (double)below >= wanted) {
			uint64_t largest = largest_in(i);

			return largest < histogram->max_ns ? largest : histogram->max_ns;
		}
	}
	return 0;
}
