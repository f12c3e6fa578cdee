/* SPDX-License-Identifier: MIT */
/*
 * The data that account.bpf.c collects and sipaccount.c reports. Times are CLOCK_MONOTONIC in ns. account.bpf.c defines
 * the terms burst and competitor.
 */
#ifndef SIPSCHED_ACCOUNT_H
#define SIPSCHED_ACCOUNT_H
#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define ACCOUNT_CPUS   256 /* largest number of CPUs, a power of two */
#define ACCOUNT_GROUPS 4   /* largest number of process groups of the proxy and its front end */
#define ACCOUNT_OWN    8   /* largest number of sshd processes that serve sipsched's connections */
#define ACCOUNT_TASKS  16384
#define ACCOUNT_BURSTS 8  /* number of the latest bursts of competitors that are kept per CPU */
#define ACCOUNT_GAPS   64 /* number of the longest gaps that are kept; in a gap, no task of the proxy runs */
#define ACCOUNT_COMM   16
/* Size of the ring buffer for bursts, a power of two. A burst needs 48 bytes, so the buffer has room for 87,381. */
#define ACCOUNT_RING_BYTES (4 * 1024 * 1024)

#define ACCOUNT_GAP_NS   10000000 /* shorter gaps are discarded */
#define ACCOUNT_BURST_NS 20000    /* shorter bursts are discarded: they cannot explain a long wait */

/* The owners of CPU time, in the order of the report. Each ns belongs to exactly one owner. */
#define ACCOUNT_PARTS(PART)                                                                         \
	PART(idle)       /* no task ran */                                                          \
	PART(proxy)      /* a task of the proxy or its front end ran */                             \
	PART(own)        /* a program in sipsched's control groups or of its SSH connections ran */ \
	PART(kernel)     /* a kernel thread ran; softirqs in ksoftirqd belong to `softirq` */       \
	PART(realtime)   /* another task ran with SCHED_FIFO, SCHED_RR or SCHED_DEADLINE */         \
	PART(fair)       /* another task ran with SCHED_OTHER, SCHED_BATCH or SCHED_EXT */          \
	PART(idle_class) /* another task ran with SCHED_IDLE */                                     \
	PART(softirq)    /* a softirq ran, after an interrupt or in ksoftirqd */                    \
	PART(irq) /* a device's interrupt handler ran; timer interrupts and IPIs belong to the interrupted task */

#define ACCOUNT_INDEX(name) PART_##name,

enum account_part {
	ACCOUNT_PARTS(ACCOUNT_INDEX) ACCOUNT_PART_COUNT
};

/*
 * Return the time from `from` until `to`, or 0 if `to` is earlier. While one CPU computes the time of a switch that the
 * kernel did not report, another CPU may write a later time.
 */
static inline __attribute__((always_inline)) __u64 account_ns(__u64 from, __u64 to)
{
	return to > from ? to - from : 0;
}

/* A task that ran on at least one of the CPUs. */
struct account_task {
	__u64 ns;         /* CPU time without interrupts */
	__u64 bursts;     /* number of times that the task got a CPU */
	__u64 longest_ns; /* longest time that the task kept a CPU */
	/*
	 * Time at which a task of the proxy began to wait for a CPU; 0 for a task that does not wait, and for other
	 * tasks.
	 */
	__u64 waiting_ns;
	/* Time at which a signal, the freezer or a tracer stopped a task of the proxy. 0 if the task is not stopped. */
	__u64 stopped_ns;
	__u64 competed; /* CPU time that competitors had used on wait_cpu when the wait began */
	__u32 wait_cpu;
	__s32 pid, tgid;
	__u32 part;
	__u32 policy; /* scheduling policy when the task last ran */
	/* scheduling policy during the longest burst; `policy` may have changed after this burst */
	__u32 longest_policy;
	__s32 nice;
	__u32 cpu;
	char comm[ACCOUNT_COMM];
};

struct account_burst {
	__u64 key; /* key of the task that ran */
	__u64 from_ns, to_ns;
};

/* A record of the ring buffer: a burst of a softirq, or of a task outside the proxy. */
struct account_kept {
	__u64 from_ns, to_ns;
	char comm[ACCOUNT_COMM]; /* empty for a softirq */
	__s32 pid;               /* number of the softirq if `part` is PART_softirq */
	__u16 cpu;
	__u16 part;
};

struct account_cpu {
	__u64 started_ns, ended_ns; /* when the measurement of this CPU began and ended; 0: not yet */
	__u64 charged_ns;           /* `ns` includes the time until this instant */
	__u64 ns[ACCOUNT_PART_COUNT];
	__u64 competed; /* CPU time of competitors: the owners realtime, fair and idle_class */
	/* The members from `key` to `part` describe the task that runs now. `task` is the address of its task_struct. */
	__u64 key, task, since_ns, net_ns;
	__u32 part;
	__u32 irqs, softirqs; /* nesting depth of interrupts and softirqs */
	__u64 softirq_ns;     /* time at which the current softirq began */
	__u32 next_burst;
	struct account_burst bursts[ACCOUNT_BURSTS];
};

/*
 * The worst wait of a proxy's task for a CPU. During this wait, competitors used more time of the CPU than during any
 * other wait.
 */
struct account_wait {
	__u64 ns;
	__u64 competed;
	__u64 by; /* key of the competitor with the longest burst during the wait; 0 if unknown */
	__s32 pid;
	__u32 cpu;
};

struct account_gap {
	__u64 from_ns, to_ns;
};

struct account_stop {
	__u64 ns; /* longest time that a task of the proxy was stopped */
	__s32 pid;
	__u32 traced; /* number of times that a tracer stopped a task of the proxy */
};
#endif
