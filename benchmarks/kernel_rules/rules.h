/* SPDX-License-Identifier: MIT */
/*
 * Random states of a run queue and of a machine with several CPUs, and the
 * decisions in these states, which the benchmark compares between the kernel
 * and the simulator.
 */
#ifndef KERNEL_RULES_H
#define KERNEL_RULES_H
#include <stdbool.h>
#include <stdint.h>

#define TASKS         6
#define CPUS          6
#define MACHINE_TASKS 12
#define NONE          (-1)
#define NOW_NS        10000000000ULL
#define JIFFY_NS      4000000

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
	/*
   * members for tasks that leave their queue: CPU time of the running task that
   * its vruntime does not contain yet, and growth of min_vruntime while a task
   * sleeps
   */
	uint64_t uncharged_ns, slept_ns;
	uint64_t sleeper_vruntime; /* vruntime of a task that wakes up, before its
                                placement */
	enum task_policy sleeper_policy;
	/* a task whose policy and nice value change, and its new nice value and
   * weight */
	int changed, new_nice;
	uint64_t new_weight;
	uint64_t latency_ns, min_granularity_ns, wakeup_granularity_ns, nr_latency, migration_cost_ns;
	uint64_t since_ns; /* time since the last run of the task that may migrate */
	bool target_runs;  /* whether a task runs on the CPU to which the task would
                        migrate */
	/*
   * flips: how often the waker and the wakee recently woke a different task
   * than at their previous wake-up (wakee_flips). size: number of CPUs that
   * share a cache.
   */
	unsigned int flips[2], size;
};

/* A task's vruntime and the least vruntime of its queue. */
struct times {
	uint64_t vruntime, min_vruntime;
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
	/* after the running task sleeps, after it wakes up, and after a queued task
   * leaves for another CPU */
	struct times sleep, wake, move;
	struct times change; /* after a task's policy or nice value changes (DEQUEUE_SAVE) */
};

/* A machine on which task 0 sleeps, and the other tasks run or wait for a CPU.
 */
struct machine {
	int cpus, shared; /* number of CPUs, and number of neighbouring CPUs that
                       share a cache */
	int newly_idle;   /* a CPU without tasks */
	int waker;        /* the CPU whose softirq wakes task 0 */
	int n;            /* number of tasks, including task 0 */
	int cpu[MACHINE_TASKS], first_cpu[MACHINE_TASKS], n_cpus[MACHINE_TASKS];
	enum task_policy policy[MACHINE_TASKS];
	uint64_t weight[MACHINE_TASKS], since_ns[MACHINE_TASKS]; /* since_ns: time since the last run */
	/* the history: in each step, a task either joins the queue of its CPU, or is
   * picked and runs */
	int steps;
	struct {
		int task;
		bool runs;
	} step[2 * MACHINE_TASKS];
	/* members for wake_wide(): the first value is for the waker, the second for
   * task 0 */
	unsigned int flips[2];
	uint64_t decayed_ns[2]; /* time since the last decay of `flips` */
	bool same_wakee;        /* whether the waker's last wake-up also woke task 0 */
	/* members for rules that the simulator lacks: SIS_UTIL has nr_idle_scan,
   * SIS_PROP has the last two */
	int recent_used_cpu, nr_idle_scan;
	uint64_t wake_avg_idle_ns, scan_cost_ns;
	/* members for the newly idle CPU; idle_ns is the time for which the CPU was
   * idle until now */
	uint64_t migration_cost_ns, balance_ns, average_idle_ns, idle_ns;
	unsigned int balance_failed;
};

/* Without 0, 1 or 2 of the rules that the simulator lacks: recent_used_cpu, and
 * a limit of the scan. */
#define WITHOUT 3

struct choices {
	int cpu[WITHOUT];         /* the CPU for task 0 */
	int taken;                /* bits of the tasks that the newly idle CPU takes */
	bool is_idle;             /* whether the newly idle CPU counts as idle afterwards */
	uint64_t average_idle_ns; /* average idle time after the CPU stopped being idle */
};

/* whether a slice is at least the minimal granularity, as in Linux 6.1 */
extern bool with_base_slice;
void decide_as_kernel(const struct state *state, struct decisions *made);
void decide_as_simulator(const struct state *state, struct decisions *made);
void choose_as_kernel(const struct machine *machine, struct choices *made);
void choose_as_simulator(const struct machine *machine, struct choices *made);
/* placing.c defines this part of decide_as_simulator(), and simulator.c calls
 * it. */
void decide_placement(const struct state *state, struct decisions *made);
#endif
