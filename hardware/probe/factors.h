/* SPDX-License-Identifier: MIT */
/* The data that factors.bpf.c collects and sipfactors.c reports. Times are CLOCK_MONOTONIC in ns. */
#ifndef SIPSCHED_FACTORS_H
#define SIPSCHED_FACTORS_H
#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define FACTORS_GROUPS 2 /* process groups of the proxy and of its front end */
#define FACTORS_CPUS   256
#define FACTORS_TASKS  65536 /* a power of two; the index is the low bits of the thread id */

/* The causes of waiting, in the order of the report. */
#define FACTORS_WAITS(WAIT)                                                                  \
	WAIT(kernel_spin)  /* wait for a lock of the kernel by spinning */                   \
	WAIT(kernel_sleep) /* wait for a lock of the kernel asleep (mutex, rwsem, percpu) */ \
	WAIT(futex)        /* wait for a lock of the proxy by FUTEX_WAIT or a variant */     \
	WAIT(sched_yield)  /* wait for a lock of the proxy by sched_yield(), after spinning */

#define FACTORS_INDEX(name) FACTOR_##name,

enum factor {
	FACTORS_WAITS(FACTORS_INDEX) FACTORS
};

struct wait {
	__u64 count;
	__u64 ns;
};

/* The counters of one CPU. User space adds up the counters of all CPUs. */
struct factor_counts {
	struct wait wait[FACTORS];
	__u64 descriptors; /* descriptors sent to another process (SCM_RIGHTS) */
};
#endif
