// SPDX-License-Identifier: MIT
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model.h"

enum type {
	NUMBER,
	COUNT,
	INTEGER,
	SWITCH,
	REAL,
	CHOICE
};

struct entry {
	const char *name;
	enum type type;
	size_t offset, size; /* offset and size of the member, which has one value or a list of values */
	double least, most;
	const char *choices; /* allowed words, each followed by a space */
};

#define AT(field) offsetof(struct model, field), sizeof(((struct model *)0)->field)
/* clang-format off */
#define BETWEEN(field, type, least, most) { #field, type, AT(field), least, most, NULL }
#define ONE_OF(field, words) { #field, CHOICE, AT(field), 0, 0, words }
#define NS(field) BETWEEN(field, NUMBER, 0, 1e15)
#define YES_NO(field) BETWEEN(field, SWITCH, 0, 1)
/* clang-format on */

static const struct entry ENTRIES[] = {
	BETWEEN(rate_cps, REAL, 1e-6, 1e9),
	BETWEEN(calls, NUMBER, 1, 1e8),
	BETWEEN(seed, NUMBER, 0, 1.8e19),
	YES_NO(constant_arrivals),
	YES_NO(retransmissions),
	YES_NO(hold_exponential),
	YES_NO(answered),
	NS(ring_ns),
	NS(hold_ns),
	NS(drain_ns),
	NS(setup_limit_ns),
	BETWEEN(t1_ns, NUMBER, 1, 1e12),
	BETWEEN(t2_ns, NUMBER, 1, 1e12),
	BETWEEN(cores, COUNT, 1, CPUS_MAX),
	BETWEEN(cores_per_processor, COUNT, 1, CPUS_MAX),
	BETWEEN(online, COUNT, 0, CPUS_MAX),
	BETWEEN(online_per_processor, COUNT, 0, CPUS_MAX),
	YES_NO(numa),
	BETWEEN(receive_cpus, COUNT, 0, CPUS_MAX),
	BETWEEN(receive_first_cpu, COUNT, 0, CPUS_MAX),
	BETWEEN(receive_step, COUNT, 1, CPUS_MAX),
	BETWEEN(peers, COUNT, 1, 1e6),
	NS(link_ns),
	NS(interrupt_ns),
	NS(receive_ns),
	NS(wake_ns),
	NS(switch_ns),
	NS(idle_exit_ns),
	BETWEEN(tick_ns, NUMBER, 1000, 1e12),
	NS(refill_ns),
	NS(refill_doubling_ns),
	NS(refill_near_ns),
	NS(refill_far_ns),
	NS(balance_ns),
	YES_NO(irq_time_accounting),
	NS(stall_every_ns),
	NS(stall_ns),
	BETWEEN(receive_buffer_bytes, NUMBER, 0, 1e15),
	BETWEEN(truesize, NUMBER, 1, 1e9),
	ONE_OF(queue_rule, "until_over within "),
	YES_NO(deferred_release),
	YES_NO(wake_all),
	NS(socket_lock_ns),
	NS(transfer_ns),
	BETWEEN(sockets, COUNT, 1, WORKERS_MAX),
	ONE_OF(choice, "call connection holder "),
	NS(dispatch_ns),
	YES_NO(streams),
	NS(stream_ns),
	BETWEEN(connections, COUNT, 0, 1e6),
	BETWEEN(instances, COUNT, 1, WORKERS_MAX),
	BETWEEN(compared, COUNT, 0, COMPARED_MAX),
	BETWEEN(compared_workers, COUNT, 0, WORKERS_MAX),
	BETWEEN(compared_cores, COUNT, 0, CPUS_MAX),
	BETWEEN(compared_buffer_bytes, NUMBER, 0, 1e15),
	BETWEEN(fronts, COUNT, 0, WORKERS_MAX),
	NS(front_ns),
	NS(keep_ns),
	BETWEEN(length, COUNT, 0, 65535),
	BETWEEN(workers, COUNT, 1, WORKERS_MAX),
	NS(copy_ns),
	NS(send_ns),
	NS(loop_ns),
	NS(empty_receive_ns),
	YES_NO(trying),
	ONE_OF(service_law, "constant exponential lognormal "),
	BETWEEN(service_ns, REAL, 0, 1e12),
	BETWEEN(service_scv, REAL, 0, 1000),
	BETWEEN(lock_share, REAL, 0, 1),
	BETWEEN(spin_ns, NUMBER, 1, 1e12),
	BETWEEN(yield_ns, NUMBER, 1, 1e12),
	ONE_OF(rules, "eevdf cfs "),
	ONE_OF(policy, "other batch fifo rr "),
	BETWEEN(nice, INTEGER, -20, 19),
	YES_NO(placement),
	BETWEEN(slice_ns, NUMBER, 1, 1e12),
	BETWEEN(base_slice_ns, NUMBER, 1, 1e12),
	YES_NO(place_lag),
	YES_NO(run_to_parity),
	YES_NO(preempt_short),
	YES_NO(delay_dequeue),
	BETWEEN(latency_ns, NUMBER, 1, 1e12),
	BETWEEN(min_granularity_ns, NUMBER, 1, 1e12),
	NS(wakeup_granularity_ns),
	BETWEEN(nr_latency, NUMBER, 1, 1e9),
	NS(migration_cost_ns),
	ONE_OF(release, "3.2 5.10 6.1 "),
	BETWEEN(competitors, COUNT, 0, COMPETITORS_MAX),
	NS(competitor_period_ns),
	NS(competitor_work_ns),
	ONE_OF(competitor_policy, "other batch fifo rr idle "),
	BETWEEN(competitor_nice, INTEGER, -20, 19),
	BETWEEN(competitor_first_cpu, COUNT, 0, CPUS_MAX),
	BETWEEN(competitor_cpus, COUNT, 1, CPUS_MAX),
	BETWEEN(competitor_slice_ns, NUMBER, 1, 1e12),
	NS(burst_every_ns),
	NS(burst_ns),
	BETWEEN(burst_weight, COUNT, 1, 88761),
	NS(logger_ns),
	BETWEEN(logger_queue, COUNT, 0, 1e6),
	YES_NO(logger_apart),
	BETWEEN(events_max, NUMBER, 1, 1e18),
};
#define N_ENTRIES (sizeof(ENTRIES) / sizeof(ENTRIES[0]))

/* Read one word. Return the text after the word, or NULL if it is not an allowed word. */
static const char *read_choice(const char *choices, const char *text, int *index)
{
	const char *word = text + strspn(text, " ");
	size_t size = strcspn(word, " ");

	*index = 0;
	while (*choices) {
		size_t length = strcspn(choices, " ");

		if (size == length && !strncmp(choices, word, length))
			return word + size;
		choices += length + 1;
		++*index;
	}
	return NULL;
}

/* Read one number or word. Return the text after it, or NULL if it is missing or not allowed. */
static const char *read_one(const struct entry *e, const char *text, void *to)
{
	char *end;
	double value;

	if (e->type == CHOICE)
		return read_choice(e->choices, text, to);
	errno = 0;
	value = strtod(text, &end);
	if (end == text || errno || !(value >= e->least && value <= e->most))
		return NULL;
	if (e->type == REAL) {
		*(double *)to = value;
		return end;
	}
	if (e->type == INTEGER) {
		*(int *)to = (int)strtol(text, &end, 10);
	} else {
		/* read seeds as integers, because they have 64 bits and strtod rounds above 2^53 */
		uint64_t whole = strtoull(text, &end, 10);

		if (e->type == COUNT)
			*(uint32_t *)to = (uint32_t)whole;
		else if (e->type == SWITCH)
			*(bool *)to = whole;
		else
			*(uint64_t *)to = whole;
	}
	return *end && *end != ' ' ? NULL : end;
}

static bool read_value(const struct entry *e, const char *text, char *model)
{
	static const size_t SIZES[] = {
		[NUMBER] = sizeof(uint64_t), [COUNT] = sizeof(uint32_t), [INTEGER] = sizeof(int),
		[SWITCH] = sizeof(bool),     [REAL] = sizeof(double),    [CHOICE] = sizeof(int)
	};
	char *to = model + e->offset;

	for (size_t at = 0; text && at < e->size; at += SIZES[e->type])
		text = read_one(e, text, to + at);
	return text && !text[strspn(text, " ")];
}

static size_t find_entry(const char *name)
{
	size_t i = 0;

	while (i < N_ENTRIES && strcmp(ENTRIES[i].name, name))
		i++;
	return i;
}

bool model_set(struct model *model, const char *name, const char *value)
{
	size_t i = find_entry(name);

	return i < N_ENTRIES && read_value(&ENTRIES[i], value, (char *)model);
}

static const char *complain(char *error, size_t size, const char *what, const char *line)
{
	snprintf(error, size, "%s: %.100s", what, line);
	return error;
}

/* Return whether the lists of the compared instances agree with the other parameters. */
static bool compares_well(const struct model *m)
{
	uint32_t workers = 0;

	if (!m->compared)
		return true;
	for (uint32_t i = 0; i < m->compared; i++) {
		if (!m->compared_workers[i] || !m->compared_cores[i] || m->compared_cores[i] > m->cores)
			return false;
		workers += m->compared_workers[i];
	}
	return workers == m->workers && m->sockets == m->compared && m->instances == m->compared &&
	       m->choice != CHOICE_HOLDER && !m->fronts;
}

const char *model_parse(struct model *model, const char *text, char *error, size_t size)
{
	bool seen[N_ENTRIES] = { false };
	char line[512];

	memset(model, 0, sizeof(*model));
	while (*text) {
		size_t length = strcspn(text, "\n"), i;
		char *value;

		snprintf(line, sizeof(line), "%.*s", (int)length, text);
		text += length + (text[length] == '\n');
		if (!*line || *line == '#')
			continue;
		value = strstr(line, " = ");
		if (!value || length >= sizeof(line))
			return complain(error, size, "expected `name = value`", line);
		*value = '\0';
		i = find_entry(line);
		if (i == N_ENTRIES)
			return complain(error, size, "unknown name", line);
		if (seen[i])
			return complain(error, size, "named twice", line);
		seen[i] = true;
		if (!read_value(&ENTRIES[i], value + 3, (char *)model)) {
			*value = ' ';
			return complain(error, size, "not an allowed value", line);
		}
	}
	for (size_t i = 0; i < N_ENTRIES; i++)
		if (!seen[i])
			return complain(error, size, "missing", ENTRIES[i].name);
	if (model->receive_cpus > model->cores)
		return complain(error, size, "larger than the number of cores", "receive_cpus");
	if (model->receive_first_cpu + model->receive_cpus * model->receive_step > CPUS_MAX)
		return complain(error, size, "larger than the number of CPUs", "receive_first_cpu");
	if (model->sockets > model->workers)
		return complain(error, size, "larger than the number of workers", "sockets");
	if (model->sockets % model->instances)
		return complain(error, size, "does not divide the number of sockets", "instances");
	if (model->choice == CHOICE_HOLDER && (model->sockets != model->workers || model->fronts != 1))
		return complain(error, size, "expected one socket per worker and one front",
				"choice = holder");
	if (!compares_well(model))
		return complain(error, size, "does not agree with workers, cores, sockets or instances",
				"compared");
	for (uint32_t i = 0; i < model->competitors; i++)
		if (model->competitor_first_cpu[i] + model->competitor_cpus[i] > model->cores)
			return complain(error, size, "includes a CPU above the last", "competitor_cpus");
	return NULL;
}

const char *model_read(struct model *model, const char *path, char *error, size_t size)
{
	FILE *file = fopen(path, "r");
	char text[16384];
	size_t length;

	if (!file) {
		snprintf(error, size, "%s", strerror(errno));
		return error;
	}
	length = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	if (length == sizeof(text) - 1)
		return complain(error, size, "too long", path);
	text[length] = '\0';
	return model_parse(model, text, error, size);
}
