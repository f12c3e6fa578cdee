/* SPDX-License-Identifier: MIT */
/* The data that the BPF program shard.bpf.c shares with its loader. */
#ifndef SIPSCHED_SHARD_H
#define SIPSCHED_SHARD_H
#include <linux/types.h>

#define SHARDS_MAX 250 /* largest number of sockets at one port */
/* Number of bytes at the start of a message in which the program looks for the header with the key. */
#define HEAD_BYTES 2048

/* The part of a message that selects the socket. The user and the domain are parts of the URI in the To header. */
enum shard_key {
	SHARD_BY_CALL_ID,
	SHARD_BY_USER,
	SHARD_BY_DOMAIN,
};

/* The counters of the BPF program on one CPU. */
struct shard_counts {
	__u64 selected[SHARDS_MAX];
	/* Messages without the key in the first HEAD_BYTES, which went to socket 0. */
	__u64 without_key;
	__u64 gone; /* messages that the program dropped because the socket of their key was closed */
};
#endif
