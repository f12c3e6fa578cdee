// SPDX-License-Identifier: MIT
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include "../common/clock.h"
#include "process.h"

void prepare_process(int fifo)
{
	struct rlimit files;

	catch_signals();
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	/* Ignore a refusal of SCHED_FIFO, because the report shows which policy the kernel granted. */
	if (fifo)
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
