/* SPDX-License-Identifier: MIT */
/*
 * When calls start: drawn beforehand, the same for the same seed on every machine.
 *
 * The file: a header, then one struct scheduled_call a call, starts never decreasing. Little-endian, no
 * padding. Raise SCHEDULE_VERSION when a field or the drawing changes.
 *
 * How an exponential schedule is drawn, for i = 1, 2, ... (double precision, no fused multiply-add):
 *   state += 0x9e3779b97f4a7c15, modulo 2^64; state starts as the seed                  (splitmix64)
 *   x = state;  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;  x = (x ^ x >> 27) * 0x94d049bb133111eb;
 *   x = x ^ x >> 31
 *   u = ((x >> 11) + 1) * 2^-53, in (0, 1]
 *   t = t + -ln(u) / rate, in seconds; t starts as 0
 *   offset = floor(t * 1e9 + 0.5)
 * ln(u) differs in the last bit between math libraries, so it is computed here from the four operations:
 *   u = m * 2^e with m in [0.5, 1) (frexp); if m < 0.70710678118654752: m = 2 m, e = e - 1
 *   s = (m - 1) / (m + 1);  z = s * s;  p = 1/25;  for k = 23, 21, ... 1:  p = p * z + 1/k
 *   ln(u) = e * 0.69314718055994531 + 2 * s * p
 * Every step is IEEE 754 and exists in numpy, where the same operations give the same bits
 * (numpy.frexp, numpy.cumsum).
 *
 * A constant schedule: offset = floor(i * 1e9 / rate + 0.5) for i = 0, 1, 2, ...
 *
 * A call's own random times (hold) are drawn from a state of splitmix64 that stands beside its start. Of call
 * i = 0, 1, 2, ... it is ~seed + i * 0x9e3779b97f4a7c15, modulo 2^64: the i-th draw of one generator that
 * starts as the seed's complement.
 *
 * A schedule of blocks: a text has a line a window, in order of playing, `<block> <length in ns>`; the windows
 * of a block stand together, blocks in rising order. Windows follow each other without a gap, the first from t0.
 * Each window plays the calls of a schedule with the block's own seed, by the law and rate of all, from the
 * window's start and up to its length, which is left out: windows of one block and length have the same calls,
 * with the same random times. An exponential law forgets at a window's start what came before, so that the
 * whole keeps the law; only, each block's calls come again. The block's seed:
 *   state = seed;  state = splitmix64(&state) + block, modulo 2^64;  seed of the block = splitmix64(&state)
 */
#ifndef SIPSCHED_SCHEDULE_H
#define SIPSCHED_SCHEDULE_H
#include <stdint.h>

#define SCHEDULE_MAGIC     "SIPSCHED"
#define SCHEDULE_VERSION   2
#define SCHEDULE_CALLS_MAX 100000000

enum schedule_law {
	SCHEDULE_EXPONENTIAL = 1,
	SCHEDULE_CONSTANT = 2,
	SCHEDULE_TEXT = 3, /* start times given in a text file */
};

struct schedule_header {
	char magic[8];     /* SCHEDULE_MAGIC */
	uint32_t version;  /* SCHEDULE_VERSION */
	uint32_t law;      /* enum schedule_law */
	uint64_t count;    /* of the calls that follow */
	uint64_t distinct; /* of them: those that were drawn; count, unless a block's are played again */
	uint64_t seed;
	double rate_cps; /* of a text file: calls / last start */
} __attribute__((packed));

struct scheduled_call {
	uint64_t offset_ns; /* its start after t0 */
	uint64_t random;    /* state of splitmix64 that its own random times are drawn from */
} __attribute__((packed));

struct schedule {
	struct schedule_header header;
	struct scheduled_call *calls;
};

/* 64 random bits. */
uint64_t splitmix64(uint64_t *state);

/* An exponential variate of mean 1. */
double draw_exponential(uint64_t *state);

/* The functions below return NULL, or what is wrong, as a static text. */
const char *schedule_draw(struct schedule *schedule, enum schedule_law law, double rate_cps, uint64_t count,
			  uint64_t seed);
/* The schedule of the blocks that a text file lists; empty lines and lines with # in front are skipped. */
const char *schedule_draw_blocks(struct schedule *schedule, enum schedule_law law, double rate_cps,
				 const char *path, uint64_t seed);
/* Start times in seconds, one a line, not decreasing; empty lines and lines with # in front are skipped. */
const char *schedule_read_text(struct schedule *schedule, const char *path, uint64_t seed);
const char *schedule_read(struct schedule *schedule, const char *path);
const char *schedule_write(const struct schedule *schedule, const char *path);
void schedule_free(struct schedule *schedule);
#endif
