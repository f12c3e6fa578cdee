// SPDX-License-Identifier: MIT
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plan.h"

/* The parameters of the model that a plan may change while workers serve messages. */
static const char *const SWITCHED[] = {
	"policy",
	"nice",
	"slice_ns",
	"latency_ns",
	"min_granularity_ns",
	"wakeup_granularity_ns",
	"nr_latency",
	"migration_cost_ns",
};

static bool is_switched(const char *name)
{
	for (size_t i = 0; i < sizeof(SWITCHED) / sizeof(SWITCHED[0]); i++)
		if (!strcmp(SWITCHED[i], name))
			return true;
	return false;
}

/* Read a whole number into `value`, and move `text` behind the number and the following space. Return false on an error. */
static bool read_number(char **text, uint64_t most, uint64_t *value)
{
	char *end;

	if (**text < '0' || **text > '9')
		return false;
	errno = 0;
	*value = strtoull(*text, &end, 10);
	*text = end + (*end == ' ');
	return !errno && *value <= most && (!*end || *end == ' ');
}

static bool read_mode(struct plan *plan, char *text, const struct model *model)
{
	char *value = strstr(text, " = ");
	uint64_t number;

	if (!value || !read_number(&text, plan->n_modes, &number) || number == MODES_MAX)
		return false;
	*value = '\0';
	if (number == plan->n_modes)
		plan->modes[plan->n_modes++] = *model;
	return is_switched(text) && model_set(&plan->modes[number], text, value + 3);
}

static bool read_window(struct plan *plan, char *text)
{
	struct plan_window *larger;
	uint64_t start_ns, mode;

	if (!read_number(&text, UINT64_MAX, &start_ns) || !read_number(&text, UINT32_MAX, &mode) || *text)
		return false;
	if (plan->n_windows ? start_ns <= plan->windows[plan->n_windows - 1].start_ns : start_ns)
		return false;
	if (plan->n_windows == plan->room) {
		plan->room = plan->room ? 2 * plan->room : 64;
		larger = realloc(plan->windows, plan->room * sizeof(*larger));
		if (!larger)
			return false;
		plan->windows = larger;
	}
	plan->windows[plan->n_windows++] = (struct plan_window){ start_ns, (uint32_t)mode };
	return mode < plan->n_modes;
}

static bool read_line(struct plan *plan, char *line, const struct model *model)
{
	char *text = strchr(line, ' ');
	uint64_t *number;

	if (!text)
		return false;
	*text++ = '\0';
	if (!strcmp(line, "mode"))
		return read_mode(plan, text, model);
	if (!strcmp(line, "window"))
		return read_window(plan, text);
	number = !strcmp(line, "end")       ? &plan->end_ns
		 : !strcmp(line, "sample")  ? &plan->sample_ns
		 : !strcmp(line, "setattr") ? &plan->setattr_ns
					    : NULL;
	return number && read_number(&text, UINT64_MAX, number) && !*text;
}

const char *plan_read(struct plan *plan, const char *path, const struct model *model, char *error,
		      size_t size)
{
	FILE *file = fopen(path, "r");
	char line[512];
	int number = 0;
	bool good = true;

	memset(plan, 0, sizeof(*plan));
	if (!file) {
		snprintf(error, size, "%s", strerror(errno));
		return error;
	}
	while (good && fgets(line, sizeof(line), file)) {
		number++;
		line[strcspn(line, "\n")] = '\0';
		good = read_line(plan, line, model);
	}
	fclose(file);
	if (!good)
		snprintf(error, size, "line %d: unknown name or not an allowed value (plan.h)", number);
	else if (!plan->n_windows || plan->end_ns <= plan->windows[plan->n_windows - 1].start_ns ||
		 !plan->sample_ns)
		snprintf(error, size, "expected windows, a later end and a sample period");
	else
		return NULL;
	return error;
}

void plan_free(struct plan *plan)
{
	free(plan->windows);
}
