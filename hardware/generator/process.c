// SPDX-License-Identifier: MIT
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include "link.h"
#include "process.h"

volatile sig_atomic_t stop_asked;

static void on_signal(int number)
{
	(void)number;
	stop_asked = 1;
}

int fail(const char *what, const char *why)
{
	fprintf(stderr, "sipload: %s: %s\n", what, why);
	return EXIT_BAD;
}

void prepare_process(int fifo)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct rlimit files;

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (fifo) /* threads inherit it; refused: see the report */
		sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ .sched_priority = fifo });
}

void settle_thread(const int *cpus, unsigned n_cpus, unsigned thread)
{
	cpu_set_t set;

	prctl(PR_SET_TIMERSLACK, 1UL);
	if (!n_cpus)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpus[thread % n_cpus], &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("--cpus", strerror(errno));
}

uint32_t new_instance(void)
{
	return (uint32_t)(clock_ns() ^ (uint64_t)getpid() << 16);
}
