/* SPDX-License-Identifier: MIT */
/* The scheduling attributes of a task (struct sched_attr), and the system calls sched_setattr(2), sched_getattr(2). */
#ifndef SIPSCHED_ATTRIBUTES_H
#define SIPSCHED_ATTRIBUTES_H
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

struct attributes {
	uint32_t size;
	uint32_t policy; /* SCHED_OTHER, SCHED_BATCH, SCHED_FIFO or SCHED_RR */
	uint64_t flags;
	int32_t nice;
	uint32_t priority; /* 1 to 99 for SCHED_FIFO and SCHED_RR */
	/* Since Linux 6.12, the slice in ns for SCHED_OTHER and SCHED_BATCH. */
	uint64_t runtime;
	uint64_t deadline;
	uint64_t period;
	uint32_t util_min;
	uint32_t util_max;
};

/*
 * attributes_get() and attributes_set() return 0 on success. On failure, they return -1 and set errno. PID 0 means the
 * calling task.
 */
static inline int attributes_get(pid_t pid, struct attributes *actual)
{
	return (int)syscall(SYS_sched_getattr, pid, actual, sizeof(*actual), 0);
}

static inline int attributes_set(pid_t pid, const struct attributes *wanted)
{
	return (int)syscall(SYS_sched_setattr, pid, wanted, 0);
}
/* Return the name that plans and command lines use for a policy, or "unknown". */
static inline const char *policy_name(uint32_t policy)
{
	return policy == SCHED_OTHER   ? "other"
	       : policy == SCHED_BATCH ? "batch"
	       : policy == SCHED_FIFO  ? "fifo"
	       : policy == SCHED_RR    ? "rr"
				       : "unknown";
}

static inline bool find_policy(const char *name, uint32_t *policy)
{
	static const uint32_t POLICIES[] = { SCHED_OTHER, SCHED_BATCH, SCHED_FIFO, SCHED_RR };

	for (unsigned i = 0; i < sizeof(POLICIES) / sizeof(*POLICIES); i++)
		if (!strcmp(name, policy_name(POLICIES[i]))) {
			*policy = POLICIES[i];
			return true;
		}
	return false;
}
#endif
