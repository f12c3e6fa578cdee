/* SPDX-License-Identifier: MIT */
/* The data that the BPF programs of histograms.bpf.c and the user-space code in count.c share. */
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

/* The first four letters identify a method. In `names`, the methods follow the 1000 status codes, in this order. */
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
	6 /* arrivals are timed only while these bits of the jiffy counter are 0: in 2 of 8 jiffies */

#define HISTOGRAM_TASKS 4096 /* a power of two; the index of a task is the low bits of its id */

/* A task that receives messages. */
struct histogram_task {
	__u32 tid;
	__u32 received;
	__u64 t_received; /* when the task received its last message; 0: its times are not measured */
	__u64 t_sent;     /* when the task last sent a datagram since t_received; 0: it sent none */
};

/* The histograms and counts of one CPU. */
struct histograms {
	__u32 waiting[HISTOGRAM_BINS]; /* from netif_receive_skb to the end of the receive call */
	__u32 service
		[HISTOGRAM_BINS]; /* from the end of the receive call to the last send before the next message */
	__u32 names[HISTOGRAM_NAMES]; /* received messages per status code or method */
	__u32 unmatched;              /* datagrams with a measured arrival time that no worker received */
	__u64 service_ns;
	/*
	 * Copies of the payload bytes from which a fingerprint is computed. Arrivals and receive calls have separate
	 * buffers, because an arrival may interrupt a receive call and would overwrite a shared buffer.
	 */
	__u64 arrived[PROBE_FINGERPRINT_BYTES / 8];
	__u64 received[PROBE_FINGERPRINT_BYTES / 8];
};
#endif
