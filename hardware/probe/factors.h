/* SPDX-License-Identifier: MIT */
/* What factors.bpf.c counts and sipfactors.c reports. Times are CLOCK_MONOTONIC, in ns. */
#ifndef SIPSCHED_FACTORS_H
#define SIPSCHED_FACTORS_H
#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define FACTORS_GROUPS 2 /* the proxy, and what stands before it */
#define FACTORS_CPUS   256
#define FACTORS_TASKS  65536 /* a power of two; waits are kept by the low bits of the thread id */

/* What a task can wait for, in the order of the report. */
#define FACTORS_WAITS(WAIT)                                                           \
	WAIT(kernel_spin)  /* a lock of the kernel, spinning */                       \
	WAIT(kernel_sleep) /* a lock of the kernel, asleep: mutex, rwsem, percpu */   \
	WAIT(futex)        /* FUTEX_WAIT and its kin: a lock of the program itself */ \
	WAIT(sched_yield)  /* sched_yield: the same, spun for first */

#define FACTORS_INDEX(name) FACTOR_##name,

enum factor {
	FACTORS_WAITS(FACTORS_INDEX) FACTORS
};

struct wait {
	__u64 count;
	__u64 ns;
};

/* One a CPU, of the tasks asked for and of all others; user space sums them. */
struct factor_counts {
	struct wait wait[FACTORS];
	__u64 descriptors; /* sent to another process (SCM_RIGHTS) */
};
#endif
