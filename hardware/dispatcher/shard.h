/* SPDX-License-Identifier: MIT */
/* What the BPF program and its loader share. */
#ifndef SIPSCHED_SHARD_H
#define SIPSCHED_SHARD_H
#include <linux/types.h>

#define SHARDS_MAX 250  /* sockets of one port */
#define HEAD_BYTES 2048 /* of a message, in which its Call-ID is looked for */

/* Of one CPU. */
struct shard_counts {
	__u64 selected[SHARDS_MAX];
	__u64 without_call_id; /* no Call-ID in the first HEAD_BYTES: to socket 0 */
	__u64 gone;            /* dropped, for the socket of its call is closed */
};
#endif
