// SPDX-License-Identifier: MIT
/*
 * taskslice sets policy, nice value, priority and slice of a task, and reads them back.
 *
 * USAGE
 *   taskslice try ATTRIBUTES            tries attributes on itself: exit code 0 and the resulting attributes, or exit
 *                                       code 1 and one line with the reason
 *   taskslice run ATTRIBUTES CMD...     runs a program with these attributes, which its children and threads inherit
 *   taskslice read PID...               prints one line per task: PID ATTRIBUTES
 *   ATTRIBUTES are POLICY NICE PRIORITY SLICE. POLICY is other, batch, fifo or rr. NICE is -20 to 19 for other and batch.
 *   PRIORITY is 1 to 99 for fifo and rr. SLICE is in ns for other and batch, and 0 is the kernel's base slice. An
 *   attribute that the policy does not use is 0.
 *
 * HOW IT WORKS
 *   taskslice calls sched_setattr(2). Since Linux 6.12, the slice is sched_runtime of SCHED_OTHER and SCHED_BATCH, and the
 *   kernel limits it to 0.1 to 100 ms. Before 6.12, the call succeeds and does nothing, so taskslice reads the attributes
 *   back. A task without its own slice reads back the base slice, or 0 before 6.12. A slice needs no privilege. A negative
 *   nice value, fifo and rr need CAP_SYS_NICE. With RT group scheduling, fifo and rr also need real-time bandwidth in the
 * task's cgroup. The program chrt of util-linux cannot replace taskslice, because chrt refuses a runtime for
 * SCHED_OTHER.
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
#include "../common/arguments.h"
#include "../common/program.h"
#include "attributes.h"

#define WORDS 4 /* the number of words in the arguments ATTRIBUTES: policy, nice value, priority, slice */

static int report_error(const char *what)
{
	complain("%s", what);
	return EXIT_BAD;
}

/* Parse four words as attributes. Return NULL, or a text that describes the wrong word. */
static const char *parse(char *const words[WORDS], struct attributes *wanted)
{
	long long nice, priority, slice_ns;
	bool real_time;

	*wanted = (struct attributes){ .size = sizeof(*wanted) };
	if (!find_policy(words[0], &wanted->policy))
		return "POLICY: expected other, batch, fifo or rr";
	real_time = wanted->policy == SCHED_FIFO || wanted->policy == SCHED_RR;
	if (!parse_whole(words[1], real_time ? 0 : -20, real_time ? 0 : 19, &nice))
		return "NICE: expected -20 to 19, or 0 for fifo and rr";
	if (!parse_whole(words[2], real_time ? 1 : 0, real_time ? 99 : 0, &priority))
		return "PRIORITY: expected 1 to 99 for fifo and rr, else 0";
	if (!parse_whole(words[3], 0, real_time ? 0 : LLONG_MAX, &slice_ns))
		return "SLICE: expected ns, or 0 for fifo and rr";
	wanted->nice = (int32_t)nice;
	wanted->priority = (uint32_t)priority;
	wanted->runtime = (uint64_t)slice_ns;
	return NULL;
}

static bool is_like(const struct attributes *actual, const struct attributes *wanted)
{
	return actual->policy == wanted->policy && actual->nice == wanted->nice &&
	       actual->priority == wanted->priority &&
	       (!wanted->runtime || actual->runtime == wanted->runtime);
}

static void print_attributes(FILE *file, const struct attributes *a)
{
	fprintf(file, "%s %d %u %llu\n", policy_name(a->policy), a->nice, a->priority,
		(unsigned long long)a->runtime);
}

static int set_own(char *const words[WORDS], struct attributes *actual)
{
	struct attributes wanted;
	const char *wrong = parse(words, &wanted);

	if (wrong)
		return report_error(wrong);
	if (attributes_set(0, &wanted) || attributes_get(0, actual))
		return report_error(strerror(errno));
	if (is_like(actual, &wanted))
		return 0;
	fprintf(stderr, "taskslice: accepted, but read back as ");
	print_attributes(stderr, actual);
	return 1;
}

static int try_attributes(char *const words[WORDS])
{
	struct attributes actual;

	if (set_own(words, &actual))
		return 1;
	print_attributes(stdout, &actual);
	return 0;
}

static int run(char *const words[WORDS], char **command)
{
	struct attributes actual;

	if (set_own(words, &actual))
		return 1;
	execvp(command[0], command);
	return report_error(strerror(errno));
}

static int usage(void)
{
	complain("usage: taskslice try ATTRIBUTES | run ATTRIBUTES CMD... | read PID...; ATTRIBUTES: POLICY "
		 "NICE PRIORITY SLICE");
	return EXIT_USAGE;
}

static int read_tasks(char **pids)
{
	struct attributes actual;
	long long pid;

	for (; *pids; pids++) {
		if (!parse_whole(*pids, 1, INT32_MAX, &pid))
			return usage();
		if (attributes_get((pid_t)pid, &actual))
			return report_error(strerror(errno));
		printf("%s ", *pids);
		print_attributes(stdout, &actual);
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
	return usage();
}
