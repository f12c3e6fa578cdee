/* SPDX-License-Identifier: MIT */
/* The threads of the proxy: which are traced, and where the BPF programs keep what they know of each. */
#ifndef SIPSCHED_WORKERS_H
#define SIPSCHED_WORKERS_H
#include <stddef.h>
#include <stdint.h>
#include "attach.h"
#include "records.h"

#define COMM_SIZE 16 /* TASK_COMM_LEN: the kernel keeps 15 characters of a name */

/* A thread that is traced; its place is that of its state in the BPF program. */
struct thread {
	uint32_t tid;
	char comm[COMM_SIZE];
};

struct workers {
	const char *comm; /* name of the processes whose threads these are */
	struct sipprobe *object;
	struct records *records; /* takes what a thread that is gone received last */
	struct thread threads[PROBE_WORKERS];
	size_t n_threads;
	uint64_t untraced; /* the most threads at one time that could not be traced */
};

/* Find the proxy's threads in this network namespace and trace those that are new. */
void scan_workers(struct workers *workers);
/* Workers that have a message in service. */
uint64_t count_serving(const struct workers *workers);
/* While nothing is attached: what each worker did is forgotten, and what it receives first may be older. */
void forget_services(struct workers *workers);
/* Record the messages that were in service when the programs were detached. */
void record_last_messages(struct workers *workers);
#endif
