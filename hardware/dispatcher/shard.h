/* SPDX-License-Identifier: MIT */
/* The interface between the BPF program and its loader. */
#ifndef SIPSCHED_SHARD_H
#define SIPSCHED_SHARD_H
#include <linux/types.h>

#define SHARDS_MAX 250  /* largest number of sockets per port */
#define HEAD_BYTES 2048 /* bytes of a message in which the Call-ID is searched */

/* The counters of one CPU. */
struct shard_counts {
	__u64 selected[SHARDS_MAX];
	__u64 without_call_id; /* messages without a Call-ID in the first HEAD_BYTES, which went to socket 0 */
	__u64 gone;            /* messages that were dropped because the socket of their call is closed */
};
#endif
