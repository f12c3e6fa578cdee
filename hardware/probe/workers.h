/* SPDX-License-Identifier: MIT */
/* The threads of the proxy that the probe traces, and their slots in the BPF programs. */
#ifndef SIPSCHED_WORKERS_H
#define SIPSCHED_WORKERS_H
#include <stddef.h>
#include <stdint.h>
#include "attach.h"
#include "records.h"

#define COMM_SIZE 16 /* TASK_COMM_LEN: the kernel stores 15 characters of a program's name */

/* A thread that the probe traces. The index of the thread is also the thread's slot in the BPF programs. */
struct thread {
	uint32_t tid;
	char comm[COMM_SIZE];
};

struct workers {
	const char *comm;   /* name of the proxy's processes; the probe traces their threads */
	uint32_t namespace; /* inode number of the proxy's network namespace */
	struct sipprobe *object;
	/*
	 * Destination of the record of a thread's last message, which is written when the thread ends or tracing stops.
	 */
	struct records *records;
	struct thread threads[PROBE_WORKERS];
	size_t n_threads;
	uint64_t untraced; /* largest number of untraced threads in one scan */
};

/* Search /proc for the proxy's threads in the network namespace, and start to trace new threads. */
void scan_workers(struct workers *workers);
/* Return the number of workers that are serving a message. */
uint64_t count_serving(const struct workers *workers);
/*
 * Clear the state of every worker while no hook is attached. After this reset, the first message of a worker may be
 * older than the recording.
 */
void forget_services(struct workers *workers);
/* Write the records of messages that were still in service when the hooks were detached. */
void record_last_messages(struct workers *workers);
#endif
