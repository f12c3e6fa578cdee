/* SPDX-License-Identifier: MIT */
/* The data that histograms.bpf.c and histograms.c share. */
#ifndef SIPSCHED_HISTOGRAMS_H
#define SIPSCHED_HISTOGRAMS_H
#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif
#include "probe.h"

/*
 * A histogram of times in ns. Each power of two has HISTOGRAM_PARTS bins of equal width, so the middle of a bin is within
 * 0.8 % of each time in the bin. Times of 2^HISTOGRAM_POWERS ns (34 s) and more are in the last bin.
 * src/sipsched/measure/watching.py has the same numbers.
 */
#define HISTOGRAM_BITS   6
#define HISTOGRAM_PARTS  (1 << HISTOGRAM_BITS)
#define HISTOGRAM_POWERS 35
#define HISTOGRAM_BINS   ((HISTOGRAM_POWERS - HISTOGRAM_BITS + 1) * HISTOGRAM_PARTS)

/*
 * The BPF program knows a method by its first four letters. In this order, their counts follow the 1000 status codes.
 */
/* clang-format off */
#define HISTOGRAM_METHODS(METHOD) \
	METHOD("INVITE") METHOD("ACK ") METHOD("BYE ") METHOD("CANCEL") METHOD("OPTIONS") METHOD("REGISTER") \
	METHOD("PRACK") METHOD("SUBSCRIBE") METHOD("NOTIFY") METHOD("PUBLISH") METHOD("INFO") METHOD("REFER") \
	METHOD("MESSAGE") METHOD("UPDATE")
/* clang-format on */
#define HISTOGRAM_STATUSES 1000

#define HISTOGRAM_ONE(name) +1
enum histogram_name {
	HISTOGRAM_FIRST_METHOD = HISTOGRAM_STATUSES,
	HISTOGRAM_OTHER_REQUEST = HISTOGRAM_FIRST_METHOD HISTOGRAM_METHODS(HISTOGRAM_ONE),
	HISTOGRAM_NOT_SIP,
	HISTOGRAM_NAMES,
};

#define HISTOGRAM_UNTIMED \
	6 /* only datagrams that arrive in a jiffy without these bits are timed: 2 of 8 jiffies */

#define HISTOGRAM_TASKS 4096 /* a power of two; tasks are found by the low bits of their ids */

/* A task that receives messages. */
struct histogram_task {
	__u32 tid;
	__u32 received;
	__u64 t_received; /* time at which the task received its last message; 0: this message is not timed */
	__u64 t_sent;     /* time of the task's last send since t_received; 0: no send */
};

/* The counts of one CPU. */
struct histograms {
	__u32 waiting[HISTOGRAM_BINS]; /* from the entry into the socket's queue to the exit from it */
	__u32 service
		[HISTOGRAM_BINS]; /* from the exit to the last datagram that the task sent before its next message */
	__u32 names[HISTOGRAM_NAMES]; /* messages by status code, then by method */
	__u32 largest_queue_bytes;
	__u32 unmatched; /* timed datagrams that no worker received */
	__u64 service_ns;
	/* The start of a message, for its fingerprint. An arrival may interrupt the receive call of a worker. */
	__u64 arrived[PROBE_FINGERPRINT_BYTES / 8];
	__u64 received[PROBE_FINGERPRINT_BYTES / 8];
};
#endif
