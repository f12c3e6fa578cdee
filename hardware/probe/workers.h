/* SPDX-License-Identifier: MIT */
/* The threads of the proxy: the traced threads, and their slots in the BPF programs. */
#ifndef SIPSCHED_WORKERS_H
#define SIPSCHED_WORKERS_H
#include <stddef.h>
#include <stdint.h>
#include "attach.h"
#include "records.h"

#define COMM_SIZE 16 /* TASK_COMM_LEN: the kernel keeps 15 characters of a name */

/* A traced thread. Its index is the slot of its state in the BPF programs. */
struct thread {
	uint32_t tid;
	char comm[COMM_SIZE];
};

struct workers {
	const char *comm; /* name of the processes whose threads are traced */
	struct sipprobe *object;
	struct records *records; /* gets the last message of a thread that has ended */
	struct thread threads[PROBE_WORKERS];
	size_t n_threads;
	uint64_t untraced; /* largest number of threads at a time that could not be traced */
};

/* Find the proxy's threads in this network namespace, and trace the new ones. */
void scan_workers(struct workers *workers);
/* Return the number of workers that have a message in service. */
uint64_t count_serving(const struct workers *workers);
/*
 * Clear the state of every worker, while no hook is attached. The first message of a worker may then be older than recording.
 */
void forget_services(struct workers *workers);
/* Record the messages that were in service when the programs were detached. */
void record_last_messages(struct workers *workers);
#endif
