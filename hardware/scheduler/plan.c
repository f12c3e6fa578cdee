// SPDX-License-Identifier: MIT
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../common/arguments.h"
#include "../common/clock.h"
#include "../common/program.h"
#include "plan.h"

#define SHOWN       60 /* largest number of characters of a wrong word in an error message */
#define SLICE_LEAST (100 * NS_PER_US)
#define SLICE_MOST  (100 * NS_PER_MS)
#define TIME_MOST   (86400 * NS_PER_S)
#define VALUE_MAX   256
#define WORDS       16

struct reader {
	struct plan *plan;
	const char *path;
	unsigned line;
	bool has_first, has_sample, has_end;
	size_t room; /* number of windows for which the array `windows` has room */
	unsigned n_words;
	char *words[WORDS];
};

static bool wrong(const struct reader *reader, const char *expected, const char *found)
{
	char shown[SHOWN + 1] = "";

	for (unsigned i = 0; i < SHOWN && found[i]; i++)
		shown[i] = isprint((unsigned char)found[i]) ? found[i] : '?';
	fprintf(stderr, "switcher: %s:%u: expected %s, found %s\n", reader->path, reader->line, expected,
		shown);
	return false;
}

static const char *word(const struct reader *reader, unsigned i)
{
	return i < reader->n_words ? reader->words[i] : "nothing";
}

static bool is_word(const struct reader *reader, unsigned i, const char *expected)
{
	return !strcmp(word(reader, i), expected) || wrong(reader, expected, word(reader, i));
}

static bool ends_after(const struct reader *reader, unsigned n_words)
{
	return reader->n_words <= n_words || wrong(reader, "the end of the line", word(reader, n_words));
}

static bool read_number(const struct reader *reader, unsigned i, int64_t least, int64_t most,
			const char *what, int64_t *value)
{
	const char *text = word(reader, i);
	char expected[160];
	long long number;

	if (parse_whole(text, least, most, &number)) {
		*value = number;
		return true;
	}
	snprintf(expected, sizeof(expected), "%s from %" PRId64 " to %" PRId64, what, least, most);
	return wrong(reader, expected, text);
}

static bool read_time(const struct reader *reader, unsigned i, uint64_t least, uint64_t most,
		      const char *what, uint64_t *value)
{
	int64_t number;

	if (!read_number(reader, i, (int64_t)least, (int64_t)most, what, &number))
		return false;
	*value = (uint64_t)number;
	return true;
}

static bool read_slice(const struct reader *reader, bool real_time, uint64_t *slice_ns)
{
	if (!strcmp(word(reader, 9), "0"))
		return true;
	if (real_time)
		return wrong(reader, "slice 0 with a real-time policy", word(reader, 9));
	return read_time(reader, 9, SLICE_LEAST, SLICE_MOST, "slice 0 or", slice_ns);
}

/* Parse a line `mode N task POLICY nice N priority N slice NS`. */
static bool read_task(struct reader *reader, struct plan_mode *mode)
{
	uint32_t policy;
	bool real_time;
	int64_t nice, priority;

	if (mode->has_task)
		return wrong(reader, "one line 'task' per mode", "another line 'task'");
	if (!find_policy(word(reader, 3), &policy))
		return wrong(reader, "a policy, other, batch, fifo or rr", word(reader, 3));
	real_time = policy == SCHED_FIFO || policy == SCHED_RR;
	/*
	 * Refuse an attribute that the policy does not use, because the kernel would ignore the attribute without an
	 * error.
	 */
	if (!is_word(reader, 4, "nice") ||
	    !read_number(reader, 5, real_time ? 0 : -20, real_time ? 0 : 19, "a nice value", &nice) ||
	    !is_word(reader, 6, "priority") ||
	    !read_number(reader, 7, real_time ? 1 : 0, real_time ? 99 : 0, "a priority", &priority) ||
	    !is_word(reader, 8, "slice") || !read_slice(reader, real_time, &mode->task.runtime))
		return false;
	mode->has_task = true;
	mode->task.size = sizeof(mode->task);
	mode->task.policy = policy;
	mode->task.nice = (int32_t)nice;
	mode->task.priority = (uint32_t)priority;
	return ends_after(reader, 10);
}

static bool find_file(struct reader *reader, const char *path, unsigned *file)
{
	struct plan *plan = reader->plan;

	for (*file = 0; *file < plan->n_files; ++*file)
		if (!strcmp(plan->files[*file], path))
			return true;
	if (plan->n_files == FILES_MAX)
		return wrong(reader, "at most 16 files", "another file");
	plan->files[plan->n_files++] = keep(strdup(path));
	return true;
}

/* Parse a line `mode N file PATH VALUE...`. */
static bool read_file(struct reader *reader, struct plan_mode *mode)
{
	struct plan_write write = { 0 };
	char value[VALUE_MAX] = "";
	size_t used = 0;

	if (*word(reader, 3) != '/')
		return wrong(reader, "the path of a file, from /", word(reader, 3));
	if (reader->n_words < 5)
		return wrong(reader, "a value to write", "nothing");
	if (!find_file(reader, reader->words[3], &write.file))
		return false;
	for (unsigned i = 0; i < mode->n_writes; i++)
		if (mode->writes[i].file == write.file)
			return wrong(reader, "each file once per mode", reader->words[3]);
	for (unsigned i = 4; i < reader->n_words && used < sizeof(value); i++)
		used += (size_t)snprintf(value + used, sizeof(value) - used, "%s%s", i > 4 ? " " : "",
					 reader->words[i]);
	if (used >= sizeof(value))
		return wrong(reader, "a value of less than 256 characters", reader->words[4]);
	write.value = keep(strdup(value));
	mode->writes[mode->n_writes++] = write;
	return true;
}

static bool read_probe(struct reader *reader, struct plan_mode *mode)
{
	mode->probe_off = !strcmp(word(reader, 3), "off");
	if (!mode->probe_off && strcmp(word(reader, 3), "on"))
		return wrong(reader, "on or off", word(reader, 3));
	reader->plan->has_probe = true;
	return ends_after(reader, 4);
}

static bool read_mode(struct reader *reader)
{
	struct plan *plan = reader->plan;
	struct plan_mode *mode;
	int64_t number;

	if (!read_number(reader, 1, 0, MODES_MAX - 1, "the number of a mode", &number))
		return false;
	mode = &plan->modes[number];
	mode->known = true;
	if (number >= plan->n_modes)
		plan->n_modes = (unsigned)number + 1;
	if (!strcmp(word(reader, 2), "task"))
		return read_task(reader, mode);
	if (!strcmp(word(reader, 2), "file"))
		return read_file(reader, mode);
	if (!strcmp(word(reader, 2), "probe"))
		return read_probe(reader, mode);
	return wrong(reader, "task, file or probe", word(reader, 2));
}

static bool read_window(struct reader *reader)
{
	struct plan *plan = reader->plan;
	struct plan_window window = { .line = reader->line };
	int64_t mode;

	if (!read_time(reader, 1, 0, TIME_MOST, "the start of a window, in ns", &window.start_ns) ||
	    !read_number(reader, 2, 0, MODES_MAX - 1, "the number of a mode", &mode) ||
	    !ends_after(reader, 3))
		return false;
	window.mode = (unsigned)mode;
	if (plan->n_windows && window.start_ns <= plan->windows[plan->n_windows - 1].start_ns)
		return wrong(reader, "a start after the previous window", reader->words[1]);
	if (plan->n_windows == reader->room) {
		reader->room = reader->room ? 2 * reader->room : 256;
		plan->windows = keep(realloc(plan->windows, reader->room * sizeof(*plan->windows)));
	}
	plan->windows[plan->n_windows++] = window;
	return true;
}

/* Parse a line that has one time in ns, and that may occur only once in a plan. */
static bool read_once(struct reader *reader, bool *seen, uint64_t least, uint64_t *value)
{
	if (*seen)
		return wrong(reader, "this line once", reader->words[0]);
	*seen = true;
	return read_time(reader, 1, least, TIME_MOST, "ns", value) && ends_after(reader, 2);
}

static bool read_line(struct reader *reader, char *line)
{
	struct plan *plan = reader->plan;
	char *rest = NULL;

	reader->line++;
	reader->n_words = 0;
	for (char *at = strtok_r(line, " \t\r\n", &rest); at && *at != '#';
	     at = strtok_r(NULL, " \t\r\n", &rest)) {
		if (reader->n_words == WORDS)
			return wrong(reader, "at most 16 words", at);
		reader->words[reader->n_words++] = at;
	}
	if (!reader->n_words)
		return true;
	if (!strcmp(reader->words[0], "mode"))
		return read_mode(reader);
	if (!strcmp(reader->words[0], "window"))
		return read_window(reader);
	if (!strcmp(reader->words[0], "first"))
		return read_once(reader, &reader->has_first, 0, &plan->first_ns);
	if (!strcmp(reader->words[0], "sample"))
		return read_once(reader, &reader->has_sample, NS_PER_MS, &plan->sample_ns);
	if (!strcmp(reader->words[0], "end"))
		return read_once(reader, &reader->has_end, 1, &plan->end_ns);
	return wrong(reader, "mode, first, sample, window or end", reader->words[0]);
}

/* Check the rules that apply to several lines of the plan together. */
static bool check_whole(struct reader *reader)
{
	const struct plan *plan = reader->plan;

	if (!plan->n_modes || !plan->n_windows)
		return wrong(reader, plan->n_modes ? "a line 'window'" : "a line 'mode'",
			     "the end of the file");
	if (!reader->has_first || !reader->has_sample || !reader->has_end)
		return wrong(reader,
			     !reader->has_first    ? "a line 'first'"
			     : !reader->has_sample ? "a line 'sample'"
						   : "a line 'end'",
			     "the end of the file");
	if (plan->end_ns <= plan->windows[plan->n_windows - 1].start_ns)
		return wrong(reader, "an end after the start of the last window", "an earlier end");
	if (plan->end_ns / plan->sample_ns > SAMPLES_MAX)
		return wrong(reader, "at most 10,000,000 samples until the end", "more");
	for (size_t i = 0; i < plan->n_windows; i++) {
		reader->line = plan->windows[i].line;
		if (!plan->modes[plan->windows[i].mode].known)
			return wrong(reader, "a mode with lines of its own", "one without");
	}
	return true;
}

bool plan_read(struct plan *plan, const char *path)
{
	struct reader reader = { .plan = plan, .path = path };
	FILE *file = fopen(path, "re");
	char *line = NULL;
	size_t size = 0;
	bool good = true;

	*plan = (struct plan){ 0 };
	if (!file) {
		fail(path, strerror(errno));
		return false;
	}
	while (good && getline(&line, &size, file) >= 0)
		good = read_line(&reader, line);
	if (good && ferror(file)) {
		fail(path, "cannot be read");
		good = false;
	}
	good = good && check_whole(&reader);
	free(line);
	fclose(file);
	if (!good)
		plan_free(plan);
	return good;
}

void plan_free(struct plan *plan)
{
	for (unsigned i = 0; i < plan->n_files; i++)
		free(plan->files[i]);
	for (unsigned i = 0; i < plan->n_modes; i++)
		for (unsigned k = 0; k < plan->modes[i].n_writes; k++)
			free(plan->modes[i].writes[k].value);
	free(plan->windows);
}
