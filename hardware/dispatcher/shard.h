/* SPDX-License-Identifier: MIT */
/* The data that the BPF program shard.bpf.c shares with its loader. */
#ifndef SIPSCHED_SHARD_H
#define SIPSCHED_SHARD_H
#include <linux/types.h>

#define SHARDS_MAX 250 /* largest number of sockets at one port */
/* Number of bytes at the start of a message in which the program looks for the Call-ID. */
#define HEAD_BYTES 2048

/* The counters of the BPF program on one CPU. */
struct shard_counts {
	__u64 selected[SHARDS_MAX];
	/* Messages without a Call-ID in the first HEAD_BYTES, which went to socket 0. */
	__u64 without_call_id;
	__u64 gone; /* messages that the program dropped because the socket of their call was closed */
};
#endif
