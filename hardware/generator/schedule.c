// SPDX-License-Identifier: MIT
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "schedule.h"

_Static_assert(sizeof(struct schedule_header) == 40, "the header is 40 bytes");

uint64_t splitmix64(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ULL;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

/* Natural logarithm of 0 < u <= 1, as described in schedule.h. */
static double portable_log(double u)
{
	int exponent;
	double m = frexp(u, &exponent);
	double p = 1.0 / 25.0;
	double s, z;

	if (m < 0.70710678118654752) {
		m *= 2.0;
		exponent--;
	}
	s = (m - 1.0) / (m + 1.0);
	z = s * s;
	for (int k = 23; k >= 1; k -= 2)
		p = p * z + 1.0 / (double)k;
	return (double)exponent * 0.69314718055994531 + 2.0 * s * p;
}

double draw_exponential(uint64_t *state)
{
	return -portable_log((double)((splitmix64(state) >> 11) + 1) * 0x1p-53);
}

static const char *allocate(struct schedule *schedule, enum schedule_law law, uint64_t count)
{
	memset(schedule, 0, sizeof(*schedule));
	if (!count || count > SCHEDULE_CALLS_MAX)
		return "a schedule has 1 to 100,000,000 calls";
	memcpy(schedule->header.magic, SCHEDULE_MAGIC, sizeof(schedule->header.magic));
	schedule->header.version = SCHEDULE_VERSION;
	schedule->header.law = law;
	schedule->header.count = count;
	schedule->offsets_ns = calloc(count, sizeof(*schedule->offsets_ns));
	return schedule->offsets_ns ? NULL : "not enough memory";
}

void schedule_free(struct schedule *schedule)
{
	free(schedule->offsets_ns);
	schedule->offsets_ns = NULL;
}

const char *schedule_draw(struct schedule *schedule, enum schedule_law law, double rate_cps, uint64_t count,
			  uint64_t seed)
{
	const char *wrong = allocate(schedule, law, count);
	uint64_t state = seed;
	double t_s = 0.0;

	if (wrong)
		return wrong;
	if (!(rate_cps > 0.0 && rate_cps <= 1e9))
		return "a rate is more than 0 and at most 1e9 calls per second";
	schedule->header.rate_cps = rate_cps;
	schedule->header.seed = law == SCHEDULE_EXPONENTIAL ? seed : 0;
	for (uint64_t i = 0; i < count; i++) {
		if (law == SCHEDULE_EXPONENTIAL) {
			t_s += draw_exponential(&state) / rate_cps;
			schedule->offsets_ns[i] = (uint64_t)floor(t_s * 1e9 + 0.5);
		} else {
			schedule->offsets_ns[i] = (uint64_t)floor((double)i * 1e9 / rate_cps + 0.5);
		}
	}
	return NULL;
}

/* One line of a text file. 1: a start time, 0: nothing, -1: something else. */
static int read_line(const char *line, double *start_s)
{
	char *end;

	line += strspn(line, " \t\r\n");
	if (!*line || *line == '#')
		return 0;
	*start_s = strtod(line, &end);
	if (end == line || end[strspn(end, " \t\r\n")])
		return -1;
	/* 1e9 s are 31 years; NaN fails too */
	return *start_s >= 0.0 && *start_s < 1e9 ? 1 : -1;
}

const char *schedule_read_text(struct schedule *schedule, const char *path)
{
	FILE *file = fopen(path, "r");
	const char *wrong = NULL;
	char line[256];
	uint64_t count = 0;
	double start_s = 0.0;

	memset(schedule, 0, sizeof(*schedule));
	if (!file)
		return strerror(errno);
	while (fgets(line, sizeof(line), file))
		count += read_line(line, &start_s) != 0;
	rewind(file);
	wrong = allocate(schedule, SCHEDULE_TEXT, count);
	for (uint64_t i = 0; !wrong && fgets(line, sizeof(line), file);) {
		int found = read_line(line, &start_s);

		if (found < 0) {
			wrong = "expected one start time in seconds a line";
		} else if (found > 0 && i < count) {
			schedule->offsets_ns[i] = (uint64_t)floor(start_s * 1e9 + 0.5);
			if (i && schedule->offsets_ns[i] < schedule->offsets_ns[i - 1])
				wrong = "start times must not decrease";
			i++;
		}
	}
	if (!wrong && start_s > 0.0)
		schedule->header.rate_cps = (double)count / start_s;
	fclose(file);
	return wrong;
}

const char *schedule_read(struct schedule *schedule, const char *path)
{
	FILE *file = fopen(path, "rb");
	struct schedule_header header;
	const char *wrong;

	memset(schedule, 0, sizeof(*schedule));
	if (!file)
		return strerror(errno);
	if (fread(&header, sizeof(header), 1, file) != 1)
		wrong = "truncated: the header is not whole";
	else if (memcmp(header.magic, SCHEDULE_MAGIC, sizeof(header.magic)))
		wrong = "not a schedule: expected the magic " SCHEDULE_MAGIC;
	else if (header.version != SCHEDULE_VERSION)
		wrong = "a schedule of another version; draw it with this sipload";
	else
		wrong = allocate(schedule, header.law, header.count);
	if (!wrong) {
		schedule->header = header;
		if (fread(schedule->offsets_ns, sizeof(uint64_t), header.count, file) != header.count)
			wrong = "truncated: fewer offsets than the header says";
		else if (fgetc(file) != EOF)
			wrong = "more offsets than the header says";
	}
	for (uint64_t i = 1; !wrong && i < header.count; i++)
		if (schedule->offsets_ns[i] < schedule->offsets_ns[i - 1])
			wrong = "start times must not decrease";
	fclose(file);
	return wrong;
}

const char *schedule_write(const struct schedule *schedule, const char *path)
{
	FILE *file = fopen(path, "wb");
	bool good;

	if (!file)
		return strerror(errno);
	good = fwrite(&schedule->header, sizeof(schedule->header), 1, file) == 1 &&
	       fwrite(schedule->offsets_ns, sizeof(uint64_t), schedule->header.count, file) ==
		       schedule->header.count;
	return fclose(file) == 0 && good ? NULL : "cannot write";
}
