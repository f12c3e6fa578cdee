// SPDX-License-Identifier: MIT
/*
 * taskslice: policy, nice value, priority and slice of single tasks, set and read back.
 *
 * USAGE
 *   taskslice try ATTRIBUTES            can a task have these? exit code 0: yes, one line is what it then has;
 *                                       1: no, one line says why
 *   taskslice run ATTRIBUTES CMD...     run a program with these; its children and threads inherit them
 *   taskslice read PID...               one line a task: PID ATTRIBUTES
 *   ATTRIBUTES: POLICY NICE PRIORITY SLICE; POLICY is other, batch, fifo or rr; NICE is for other and batch, -20 to
 *   19; PRIORITY for fifo and rr, 1 to 99; SLICE for other and batch, in ns, 0: the kernel's base slice. What is
 *   for another policy is 0.
 *
 * HOW
 *   sched_setattr(2). The slice is sched_runtime of SCHED_OTHER and SCHED_BATCH, Linux 6.12 and later; the kernel
 *   keeps it within 0.1 to 100 ms. Before 6.12 the call succeeds and does nothing: that is why it is read back.
 *   What a task without a slice of its own reads back is the base slice; before 6.12 it is 0. A slice needs no
 *   privilege; a negative nice value, fifo and rr need CAP_SYS_NICE, and with RT group scheduling time of the
 *   task's cgroup. util-linux' chrt refuses a runtime for SCHED_OTHER.
 *   SEE kernel/sched/syscalls.c: __setparam_fair(), get_params()
 */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "attributes.h"

#define WORDS 4 /* of ATTRIBUTES */

static int complain(const char *what)
{
	fprintf(stderr, "taskslice: %s\n", what);
	return 1;
}

static bool parse_number(const char *word, long long least, long long most, long long *value)
{
	char *end;

	errno = 0;
	*value = strtoll(word, &end, 10);
	return !errno && end != word && !*end && *value >= least && *value <= most;
}

/* NULL, or what is wrong. */
static const char *parse(char *const words[WORDS], struct attributes *wanted)
{
	long long nice, priority, slice_ns;
	bool real_time;

	*wanted = (struct attributes){ .size = sizeof(*wanted) };
	if (!find_policy(words[0], &wanted->policy))
		return "POLICY: expected other, batch, fifo or rr";
	real_time = wanted->policy == SCHED_FIFO || wanted->policy == SCHED_RR;
	if (!parse_number(words[1], real_time ? 0 : -20, real_time ? 0 : 19, &nice))
		return "NICE: expected -20 to 19, or 0 for fifo and rr";
	if (!parse_number(words[2], real_time ? 1 : 0, real_time ? 99 : 0, &priority))
		return "PRIORITY: expected 1 to 99 for fifo and rr, else 0";
	if (!parse_number(words[3], 0, real_time ? 0 : LLONG_MAX, &slice_ns))
		return "SLICE: expected ns, or 0 for fifo and rr";
	wanted->nice = (int32_t)nice;
	wanted->priority = (uint32_t)priority;
	wanted->runtime = (uint64_t)slice_ns;
	return NULL;
}

static bool is_like(const struct attributes *found, const struct attributes *wanted)
{
	return found->policy == wanted->policy && found->nice == wanted->nice &&
	       found->priority == wanted->priority && (!wanted->runtime || found->runtime == wanted->runtime);
}

static void print_attributes(FILE *file, const struct attributes *a)
{
	fprintf(file, "%s %d %u %llu\n", policy_name(a->policy), a->nice, a->priority,
		(unsigned long long)a->runtime);
}

static int set_own(char *const words[WORDS], struct attributes *found)
{
	struct attributes wanted;
	const char *wrong = parse(words, &wanted);

	if (wrong)
		return complain(wrong);
	if (attributes_set(0, &wanted) || attributes_get(0, found))
		return complain(strerror(errno));
	if (is_like(found, &wanted))
		return 0;
	fprintf(stderr, "taskslice: taken, and read back as ");
	print_attributes(stderr, found);
	return 1;
}

static int try_attributes(char *const words[WORDS])
{
	struct attributes found;

	if (set_own(words, &found))
		return 1;
	print_attributes(stdout, &found);
	return 0;
}

static int run(char *const words[WORDS], char **command)
{
	struct attributes found;

	if (set_own(words, &found))
		return 1;
	execvp(command[0], command);
	return complain(strerror(errno));
}

static int read_tasks(char **pids)
{
	struct attributes found;

	for (; *pids; pids++) {
		if (attributes_get(atoi(*pids), &found))
			return complain(strerror(errno));
		printf("%s ", *pids);
		print_attributes(stdout, &found);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 + WORDS && !strcmp(argv[1], "try"))
		return try_attributes(argv + 2);
	if (argc > 2 + WORDS && !strcmp(argv[1], "run"))
		return run(argv + 2, argv + 2 + WORDS);
	if (argc > 2 && !strcmp(argv[1], "read"))
		return read_tasks(argv + 2);
	return complain("usage: taskslice try ATTRIBUTES | run ATTRIBUTES CMD... | read PID...; "
			"ATTRIBUTES: POLICY NICE PRIORITY SLICE");
}
