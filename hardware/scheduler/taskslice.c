// SPDX-License-Identifier: MIT
/*
 * taskslice: the slice of single tasks under EEVDF, set and read back.
 *
 * USAGE
 *   taskslice check            can this kernel do it? exit code 0: yes; 1: no, one line says why
 *   taskslice run NS CMD...    run a program with this slice; its children and threads inherit it
 *   taskslice read PID...      one line a task: PID NS; the base slice where a task has none of its own
 *
 * HOW
 *   sched_setattr(2) with SCHED_OTHER and sched_runtime = slice, Linux 6.12 and later; the kernel keeps it within
 *   0.1 to 100 ms. Needs no privilege. Before 6.12 the call succeeds and does nothing: that is why it is read
 *   back. util-linux' chrt refuses a runtime for SCHED_OTHER.
 *   SEE kernel/sched/syscalls.c: __setparam_fair()
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "attributes.h"

#define PROBE_NS 3000000ULL /* any slice that is nobody's default */

static int complain(const char *what)
{
	fprintf(stderr, "taskslice: %s\n", what);
	return 1;
}

/* Keeps policy, nice value and utilisation clamps as they are. */
static int set_own(uint64_t slice_ns)
{
	struct attributes wanted;

	if (attributes_get(0, &wanted))
		return -1;
	wanted.size = sizeof(wanted);
	wanted.runtime = slice_ns;
	return attributes_set(0, &wanted);
}

static int check(void)
{
	struct attributes found;

	if (set_own(PROBE_NS) || attributes_get(0, &found))
		return complain(strerror(errno));
	if (found.runtime != PROBE_NS)
		return complain("this kernel has no slices of single tasks (Linux 6.12 and later do)");
	return 0;
}

static int run(char *slice, char **command)
{
	char *end;
	struct attributes found;
	uint64_t slice_ns = strtoull(slice, &end, 10);

	if (*end || !slice_ns)
		return complain("NS: expected nanoseconds");
	if (set_own(slice_ns) || attributes_get(0, &found))
		return complain(strerror(errno));
	execvp(command[0], command);
	return complain(strerror(errno));
}

static int read_tasks(char **pids)
{
	struct attributes found;

	for (; *pids; pids++) {
		if (attributes_get(atoi(*pids), &found))
			return complain(strerror(errno));
		printf("%s %llu\n", *pids, (unsigned long long)found.runtime);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "check"))
		return check();
	if (argc > 3 && !strcmp(argv[1], "run"))
		return run(argv[2], argv + 3);
	if (argc > 2 && !strcmp(argv[1], "read"))
		return read_tasks(argv + 2);
	return complain("usage: taskslice check | run NS CMD... | read PID...");
}
