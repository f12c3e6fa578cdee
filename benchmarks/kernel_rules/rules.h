/* SPDX-License-Identifier: MIT */
/*
 * A random state of a run queue, and the decisions in this state, which the
 * benchmark compares between the kernel and the simulator.
 */
#ifndef KERNEL_RULES_H
#define KERNEL_RULES_H
#include <stdbool.h>
#include <stdint.h>

#define TASKS 6
#define NONE  (-1)

enum task_policy {
	TASK_NORMAL,
	TASK_BATCH,
	TASK_IDLE
};

struct state {
	int n;                    /* number of tasks, including the running task */
	int curr;                 /* index of the running task, or NONE */
	int next, last, skip;     /* tasks that CFS prefers or skips, or NONE */
	int woken;                /* index of a queued task that was just woken */
	uint64_t vruntime[TASKS]; /* virtual run time; tasks with equal values were
                               queued in the order of their numbers */
	uint64_t weight[TASKS];   /* weight that follows from the nice value */
	enum task_policy policy[TASKS];
	uint64_t min_vruntime, ran_ns; /* ran_ns: time for which the running task has
                                    run since it was picked */
	uint64_t sleeper_vruntime;     /* vruntime of a task that wakes up, before its placement */
	uint64_t latency_ns, min_granularity_ns, wakeup_granularity_ns, nr_latency, migration_cost_ns;
	uint64_t since_ns;           /* time since the last run of the task that may migrate */
	bool target_runs;            /* whether a task runs on the CPU to which the task would migrate */
	/*
	 * flips: how often the waker and the wakee recently woke a different task than at their previous wake-up
	 * (wakee_flips).
	 * size: number of CPUs that share a cache.
	 */
	unsigned int flips[2], size;
};

struct decisions {
	int pick;                /* the task that runs next */
	int compare;             /* wakeup_preempt_entity() of the first two tasks */
	uint64_t slice;          /* slice of the running task */
	bool tick;               /* whether a timer tick stops the running task */
	bool preempts;           /* whether the woken task preempts the running task */
	int next, last;          /* tasks that CFS prefers after the wake-up, or NONE */
	uint64_t place;          /* vruntime of the task that wakes up, after its placement */
	uint64_t min_vruntime;   /* min_vruntime after an update */
	bool is_hot, wakes_many; /* results of task_hot() and wake_wide() */
};

/* whether a slice is at least the minimal granularity, as in Linux 6.1 */
extern bool with_base_slice;
void decide_as_kernel(const struct state *state, struct decisions *made);
void decide_as_simulator(const struct state *state, struct decisions *made);
/* placing.c defines this part of decide_as_simulator(), and simulator.c calls it. */
void decide_placement(const struct state *state, struct decisions *made);
#endif
