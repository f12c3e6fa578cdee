/* SPDX-License-Identifier: MIT */
/* The data of account.bpf.c, which sipaccount.c reports. Times are CLOCK_MONOTONIC in ns. */
#ifndef SIPSCHED_ACCOUNT_H
#define SIPSCHED_ACCOUNT_H
#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define ACCOUNT_CPUS   256 /* a power of two */
#define ACCOUNT_GROUPS 4   /* process groups of the proxy and its front end */
#define ACCOUNT_OWN    8   /* processes whose descendants belong to sipsched: the sshd of each connection */
#define ACCOUNT_TASKS  16384
#define ACCOUNT_BURSTS 8  /* number of kept bursts of competitors per CPU: the latest bursts */
#define ACCOUNT_GAPS   64 /* number of kept gaps without a running task of the proxy: the longest gaps */
#define ACCOUNT_COMM   16

#define ACCOUNT_GAP_NS   10000000 /* shorter gaps are not kept */
#define ACCOUNT_BURST_NS 20000    /* shorter bursts are too short to explain a long wait */

/* The owners of a CPU's time, in the order of the report. Each ns belongs to exactly one owner. */
#define ACCOUNT_PARTS(PART)                                                                  \
	PART(idle)       /* no task */                                                       \
	PART(proxy)      /* tasks of the proxy and its front end */                          \
	PART(own)        /* sipsched's programs: in one of its control groups, or its SSH */ \
	PART(kernel)     /* kernel threads, including ksoftirqd outside of softirqs */       \
	PART(realtime)   /* other tasks: SCHED_FIFO, SCHED_RR, SCHED_DEADLINE */             \
	PART(fair)       /* other tasks: SCHED_OTHER, SCHED_BATCH, SCHED_EXT */              \
	PART(idle_class) /* other tasks: SCHED_IDLE */                                       \
	PART(softirq)    /* softirqs, after an interrupt and in ksoftirqd */                 \
	PART(irq) /* interrupt handlers of devices; interrupts by a timer or another CPU belong to the interrupted task */

#define ACCOUNT_INDEX(name) PART_##name,

enum account_part {
	ACCOUNT_PARTS(ACCOUNT_INDEX) ACCOUNT_PART_COUNT
};

/* A task that ran on one of the CPUs. */
struct account_task {
	__u64 ns;         /* CPU time without interrupts */
	__u64 bursts;     /* number of times on a CPU */
	__u64 longest_ns; /* longest time on a CPU */
	__u64 waiting_ns; /* time since which a task of the proxy has been runnable but not running; 0 otherwise */
	__u64 stopped_ns; /* time since which a task of the proxy has been stopped; 0 otherwise */
	__u64 competed;   /* CPU time of competitors on wait_cpu until waiting_ns */
	__u32 wait_cpu;
	__s32 pid, tgid;
	__u32 part;
	__u32 policy; /* policy when the task last ran */
	/* the state during the longest burst, since a program may change its policy later */
	__u32 longest_policy;
	__s32 nice;
	__u32 cpu;
	char comm[ACCOUNT_COMM];
};

struct account_burst {
	__u64 key; /* key of the task that ran */
	__u64 from_ns, to_ns;
};

struct account_cpu {
	__u64 started_ns, ended_ns; /* 0: counting has not begun, or has not ended */
	__u64 charged_ns;           /* `ns` contains the time until this instant */
	__u64 ns[ACCOUNT_PART_COUNT];
	__u64 competed; /* total time of the parts realtime, fair and idle_class */
	/* the task that runs now */
	__u64 key, since_ns, net_ns;
	__u32 part;
	__u32 irqs, softirqs; /* nesting depth */
	__u32 next_burst;
	struct account_burst bursts[ACCOUNT_BURSTS];
};

/* The wait of a task of the proxy during which competitors used most of the CPU that the task waited for. */
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
	__u64 ns; /* longest time that a task was stopped */
	__s32 pid;
	__u32 traced; /* number of stops by a tracer */
};
#endif
