/* SPDX-License-Identifier: MIT */
/*
 * A schedule lists the start times of calls. The same seed produces the same schedule on every machine.
 *
 * The file has a header and then one struct scheduled_call per call, in order of the start times. Numbers are little-endian
 * without padding. Raise SCHEDULE_VERSION when a field or the sampling changes.
 *
 * The sampling of an exponential schedule, for i = 1, 2, ... (double precision, no fused multiply-add):
 *   state += 0x9e3779b97f4a7c15, modulo 2^64; state starts as the seed                  (splitmix64)
 *   x = state;  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;  x = (x ^ x >> 27) * 0x94d049bb133111eb;
 *   x = x ^ x >> 31
 *   u = ((x >> 11) + 1) * 2^-53, in (0, 1]
 *   t = t + -ln(u) / rate, in seconds; t starts as 0
 *   offset = floor(t * 1e9 + 0.5)
 * Math libraries differ in the last bit of ln(u). ln(u) is therefore computed from the four basic operations:
 *   u = m * 2^e with m in [0.5, 1) (frexp); if m < 0.70710678118654752: m = 2 m, e = e - 1
 *   s = (m - 1) / (m + 1);  z = s * s;  p = 1/25;  for k = 23, 21, ... 1:  p = p * z + 1/k
 *   ln(u) = e * 0.69314718055994531 + 2 * s * p
 * Every step follows IEEE 754. The same operations in numpy (numpy.frexp, numpy.cumsum) produce the same bits.
 *
 * A constant schedule: offset = floor(i * 1e9 / rate + 0.5) for i = 0, 1, 2, ...
 *
 * Each call has its own state of splitmix64. The call's random times, such as the hold time, are sampled from this state.
 * For call i = 0, 1, 2, ... the state is ~seed + i * 0x9e3779b97f4a7c15, modulo 2^64. This state is the i-th state of a
 * generator that starts with the seed's complement.
 *
 * A schedule of blocks is sampled from a text file. The file has one line per window, `<block> <length in ns>
 * [<instance>]`, in order of time. The calls of a window go to the SIP server with the number `instance`, by default
 * 0. The windows of a block are adjacent, and block numbers ascend. The first window starts at t0, and each window
 * starts at the end of the window before. Each block has its own seed. The calls of a window are sampled from the
 * block's seed, with the common law and rate, up to the end of the window. Windows of one block with equal lengths
 * therefore have the same calls with the same random times. The exponential distribution has no memory, so the whole
 * schedule still follows the law, apart from the repetitions within blocks. The seed of a block is:
 *   state = seed;  state = splitmix64(&state) + block, modulo 2^64;  seed of the block = splitmix64(&state)
 */
#ifndef SIPSCHED_SCHEDULE_H
#define SIPSCHED_SCHEDULE_H
#include <stdint.h>

#define SCHEDULE_MAGIC         "SIPSCHED"
#define SCHEDULE_VERSION       3
#define SCHEDULE_CALLS_MAX     100000000
#define SCHEDULE_INSTANCES_MAX 256

enum schedule_law {
	SCHEDULE_EXPONENTIAL = 1,
	SCHEDULE_CONSTANT = 2,
	SCHEDULE_GIVEN = 3, /* start times from a recording; sipsched.measure.replay writes such schedules */
};

struct schedule_header {
	char magic[8];     /* always SCHEDULE_MAGIC */
	uint32_t version;  /* always SCHEDULE_VERSION */
	uint32_t law;      /* distribution of the times between calls; one of enum schedule_law */
	uint64_t count;    /* number of calls after this header */
	uint64_t distinct; /* number of different calls; windows of the same block repeat calls */
	uint64_t seed;
	double rate_cps; /* calls per second; 0 if the start times were not sampled */
} __attribute__((packed));

struct scheduled_call {
	uint64_t offset_ns; /* start time of the call in ns after t0, the start of the schedule */
	uint64_t random;    /* state of splitmix64, which computes the call's random durations */
	uint32_t
		instance; /* number of the SIP server that receives the call, less than SCHEDULE_INSTANCES_MAX */
} __attribute__((packed));

struct schedule {
	struct schedule_header header;
	struct scheduled_call *calls;
};

/* Advance `state` by one step and return 64 random bits. */
uint64_t splitmix64(uint64_t *state);

/* Sample from the exponential distribution with mean 1. */
double draw_exponential(uint64_t *state);

/* The following functions of type `const char *` return NULL on success, and a static error text on failure. */
const char *schedule_draw(struct schedule *schedule, enum schedule_law law, double rate_cps, uint64_t count,
			  uint64_t seed);
/* Sample a schedule for the windows that the text file `path` lists. Skip empty lines and comments with #. */
const char *schedule_draw_blocks(struct schedule *schedule, enum schedule_law law, double rate_cps,
				 const char *path, uint64_t seed);
const char *schedule_read(struct schedule *schedule, const char *path);
const char *schedule_write(const struct schedule *schedule, const char *path);
void schedule_free(struct schedule *schedule);
#endif
