// SPDX-License-Identifier: MIT
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "schedule.h"

_Static_assert(sizeof(struct schedule_header) == 48, "the header is 48 bytes");
_Static_assert(sizeof(struct scheduled_call) == 20, "a call is 20 bytes");

#define SPLITMIX64_STEP 0x9e3779b97f4a7c15ULL
#define LENGTH_MAX_NS   1000000000000000000ULL /* largest total length of all windows in ns: 31 years */

uint64_t splitmix64(uint64_t *state)
{
	uint64_t x = *state += SPLITMIX64_STEP;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

/* Return the natural logarithm of u for 0 < u <= 1, with the arithmetic that schedule.h describes. */
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

static const char WRONG_COUNT[] = "a schedule has 1 to 100,000,000 calls";
static const char WRONG_RATE[] = "a rate is more than 0 and at most 1e9 calls per second";

static void begin(struct schedule *schedule, enum schedule_law law, double rate_cps, uint64_t seed)
{
	memset(schedule, 0, sizeof(*schedule));
	memcpy(schedule->header.magic, SCHEDULE_MAGIC, sizeof(schedule->header.magic));
	schedule->header.version = SCHEDULE_VERSION;
	schedule->header.law = law;
	schedule->header.rate_cps = rate_cps;
	schedule->header.seed = seed;
}

static const char *allocate(struct schedule *schedule, uint64_t count)
{
	if (!count || count > SCHEDULE_CALLS_MAX)
		return WRONG_COUNT;
	schedule->header.count = count;
	schedule->header.distinct = count;
	schedule->calls = calloc(count, sizeof(*schedule->calls));
	return schedule->calls ? NULL : "not enough memory";
}

void schedule_free(struct schedule *schedule)
{
	free(schedule->calls);
	schedule->calls = NULL;
}

/* The random generator that samples the calls of a schedule one after another. */
struct drawing {
	enum schedule_law law;
	double rate_cps;
	uint64_t seed;
	uint64_t state;
	double t_s;
	uint64_t index; /* index of the next call */
};

static struct drawing begin_drawing(const struct schedule_header *header, uint64_t seed)
{
	return (struct drawing){
		.law = header->law, .rate_cps = header->rate_cps, .seed = seed, .state = seed
	};
}

static uint64_t random_of(uint64_t seed, uint64_t index)
{
	return ~seed + index * SPLITMIX64_STEP;
}

static struct scheduled_call draw_call(struct drawing *drawing)
{
	struct scheduled_call call = { .random = random_of(drawing->seed, drawing->index) };

	if (drawing->law == SCHEDULE_EXPONENTIAL) {
		drawing->t_s += draw_exponential(&drawing->state) / drawing->rate_cps;
		call.offset_ns = (uint64_t)floor(drawing->t_s * 1e9 + 0.5);
	} else {
		call.offset_ns = (uint64_t)floor((double)drawing->index * 1e9 / drawing->rate_cps + 0.5);
	}
	drawing->index++;
	return call;
}

const char *schedule_draw(struct schedule *schedule, enum schedule_law law, double rate_cps, uint64_t count,
			  uint64_t seed)
{
	struct drawing drawing;
	const char *wrong;

	begin(schedule, law, rate_cps, seed);
	if (!(rate_cps > 0.0 && rate_cps <= 1e9))
		return WRONG_RATE;
	wrong = allocate(schedule, count);
	drawing = begin_drawing(&schedule->header, seed);
	for (uint64_t i = 0; !wrong && i < count; i++)
		schedule->calls[i] = draw_call(&drawing);
	return wrong;
}

/* A schedule of blocks, to which add_window() appends the calls of one window after another. */
struct blocks {
	struct schedule *schedule;
	uint64_t room;
	uint64_t length_ns; /* total length of all windows so far */
	uint64_t block;     /* number of the block of the last window */
	uint64_t most;      /* largest number of calls in one window of this block */
	bool begun;
};

static uint64_t seed_of_block(uint64_t seed, uint64_t block)
{
	uint64_t state = seed;

	state = splitmix64(&state) + block;
	return splitmix64(&state);
}

static const char *add_call(struct blocks *blocks, struct scheduled_call call)
{
	struct schedule *schedule = blocks->schedule;
	struct scheduled_call *larger;

	if (schedule->header.count == SCHEDULE_CALLS_MAX)
		return WRONG_COUNT;
	if (schedule->header.count == blocks->room) {
		blocks->room = blocks->room ? 2 * blocks->room : 1024;
		larger = realloc(schedule->calls, blocks->room * sizeof(*larger));
		if (!larger)
			return "not enough memory";
		schedule->calls = larger;
	}
	schedule->calls[schedule->header.count++] = call;
	return NULL;
}

static const char *add_window(struct blocks *blocks, uint64_t block, uint64_t length_ns, uint32_t instance)
{
	struct schedule_header *header = &blocks->schedule->header;
	struct drawing drawing = begin_drawing(header, seed_of_block(header->seed, block));
	struct scheduled_call call = draw_call(&drawing);
	uint64_t count = 0;

	if (length_ns > LENGTH_MAX_NS - blocks->length_ns)
		return "the windows are longer than 1e18 ns together";
	if (blocks->begun && block < blocks->block)
		return "the windows of a block must be adjacent, and the numbers of blocks must ascend";
	if (!blocks->begun || block != blocks->block)
		blocks->most = 0;
	blocks->begun = true;
	blocks->block = block;
	for (; call.offset_ns < length_ns; call = draw_call(&drawing)) {
		const char *wrong;

		call.offset_ns += blocks->length_ns;
		call.instance = instance;
		wrong = add_call(blocks, call);
		if (wrong)
			return wrong;
		count++;
	}
	/*
	 * All windows of a block start with the same calls, so only a window that is longer than all earlier windows of
	 * the block adds new calls.
	 */
	if (count > blocks->most) {
		header->distinct += count - blocks->most;
		blocks->most = count;
	}
	blocks->length_ns += length_ns;
	return NULL;
}

/* Parse an integer without a sign, and move `text` to the first character after the digits. */
static bool read_number(const char **text, uint64_t *value)
{
	char *end;

	*text += strspn(*text, " \t\r\n");
	if (**text < '0' || **text > '9')
		return false;
	errno = 0;
	*value = strtoull(*text, &end, 10);
	*text = end;
	return !errno;
}

static bool is_comment(const char *line)
{
	line += strspn(line, " \t\r\n");
	return !*line || *line == '#';
}

const char *schedule_draw_blocks(struct schedule *schedule, enum schedule_law law, double rate_cps,
				 const char *path, uint64_t seed)
{
	struct blocks blocks = { .schedule = schedule };
	FILE *file = fopen(path, "r");
	const char *wrong = NULL;
	char line[256];

	begin(schedule, law, rate_cps, seed);
	if (!file)
		return strerror(errno);
	if (!(rate_cps > 0.0 && rate_cps <= 1e9))
		wrong = WRONG_RATE;
	while (!wrong && fgets(line, sizeof(line), file)) {
		const char *text = line;
		uint64_t block, length_ns, instance = 0;

		if (is_comment(line))
			continue;
		if (!read_number(&text, &block) || !strspn(text, " \t") || !read_number(&text, &length_ns) ||
		    !length_ns ||
		    (text[strspn(text, " \t\r\n")] &&
		     (!strspn(text, " \t") || !read_number(&text, &instance) ||
		      instance >= SCHEDULE_INSTANCES_MAX || text[strspn(text, " \t\r\n")])))
			wrong = "expected a block's number, a length in ns and possibly an instance per line";
		else
			wrong = add_window(&blocks, block, length_ns, (uint32_t)instance);
	}
	fclose(file);
	if (!wrong && !schedule->header.count)
		wrong = "the windows contain no call";
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
		wrong = "truncated: the header is incomplete";
	else if (memcmp(header.magic, SCHEDULE_MAGIC, sizeof(header.magic)))
		wrong = "not a schedule: expected the magic " SCHEDULE_MAGIC;
	else if (header.version != SCHEDULE_VERSION)
		wrong = "a schedule of another version; make it with this sipload";
	else
		wrong = allocate(schedule, header.count);
	if (!wrong) {
		schedule->header = header;
		if (fread(schedule->calls, sizeof(*schedule->calls), header.count, file) != header.count)
			wrong = "truncated: fewer calls than the header says";
		else if (fgetc(file) != EOF)
			wrong = "more calls than the header says";
		else if (!header.distinct || header.distinct > header.count)
			wrong = "damaged: the number of distinct calls is 0 or above the number of calls";
	}
	for (uint64_t i = 1; !wrong && i < header.count; i++)
		if (schedule->calls[i].offset_ns < schedule->calls[i - 1].offset_ns)
			wrong = "start times must not decrease";
	for (uint64_t i = 0; !wrong && i < header.count; i++)
		if (schedule->calls[i].instance >= SCHEDULE_INSTANCES_MAX)
			wrong = "damaged: a call has an instance above the largest";
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
	       fwrite(schedule->calls, sizeof(*schedule->calls), schedule->header.count, file) ==
		       schedule->header.count;
	return fclose(file) == 0 && good ? NULL : "cannot write";
}
