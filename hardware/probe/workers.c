// SPDX-License-Identifier: MIT
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "system.h"
#include "workers.h"

static bool thread_exists(uint32_t tid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u", tid);
	return access(path, F_OK) == 0;
}

/* Return the index of a free slot, or of the slot of an ended thread. Return PROBE_WORKERS if all slots are in use. */
static size_t free_slot(const struct workers *workers)
{
	if (workers->n_threads < PROBE_WORKERS)
		return workers->n_threads;
	for (size_t slot = 0; slot < PROBE_WORKERS; slot++) {
		if (!thread_exists(workers->threads[slot].tid))
			return slot;
	}
	return PROBE_WORKERS;
}

/* Write the record of the message that a thread still serves, which the BPF program writes only at the next receive. */
static void record_pending(struct workers *workers, size_t slot)
{
	struct probe_worker *worker = &workers->object->bss->workers[slot];

	if (worker->in_service)
		record_message(workers->records, &worker->message);
	worker->in_service = 0;
}

/*
 * Clear a worker's state, except for its thread id and its message number `service`. Increase the message number, so
 * that the late departure of an earlier message does not count as the departure of a new message.
 */
static void forget_worker(struct probe_worker *worker, size_t slot)
{
	uint32_t tid = worker->tid;
	uint32_t service = worker->service;

	memset(worker, 0, sizeof(*worker));
	worker->tid = tid;
	worker->service = service + 1;
	worker->fd = -1;
	worker->message.slot = (__u32)slot;
	/*
	 * Assume that the thread has been on a CPU since the earliest possible time. In tracepoint mode, t_sockq is the
	 * earliest time at which the worker may have dequeued a message. If the probe assumed a later start on a CPU,
	 * t_sockq could be too late.
	 */
	worker->on[0] = 1;
	worker->behind = 1;
}

/* Start to trace a thread, unless the probe already traces it. Return false if no slot is free for the thread. */
static bool trace_thread(struct workers *workers, uint32_t tid)
{
	__u16 *place = &workers->object->bss->slot_of_tid[tid % PROBE_TID_SLOTS];
	struct probe_worker *worker;
	struct thread *thread;
	size_t slot;

	if (*place && workers->threads[*place - 1].tid == tid)
		return true;
	if (*place && thread_exists(workers->threads[*place - 1].tid))
		/* The entry is in use by another thread, whose id has the same low 16 bits. */
		return false;
	slot = *place ? *place - 1U : free_slot(workers);
	if (slot == PROBE_WORKERS)
		return false;
	thread = &workers->threads[slot];
	worker = &workers->object->bss->workers[slot];
	if (slot == workers->n_threads) {
		workers->n_threads++;
	} else {
		record_pending(workers, slot);
		workers->object->bss->slot_of_tid[thread->tid % PROBE_TID_SLOTS] = 0;
	}
	forget_worker(worker, slot);
	memset(thread, 0, sizeof(*thread));
	workers->records->messages[slot] = 0;
	worker->tid = tid;
	thread->tid = tid;
	snprintf(thread->comm, sizeof(thread->comm), "%s", workers->comm);
	/* Complete the slot before slot_of_tid makes the slot visible to the BPF programs. */
	__sync_synchronize();
	*place = (__u16)(slot + 1);
	return true;
}

static uint64_t trace_process(struct workers *workers, const char *pid)
{
	char path[PATH_MAX];
	uint64_t untraced = 0;
	struct dirent *entry;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%s/task", pid);
	tasks = opendir(path);
	if (!tasks)
		return 0;
	while ((entry = readdir(tasks))) {
		if (isdigit((unsigned char)entry->d_name[0]) &&
		    !trace_thread(workers, (uint32_t)strtoul(entry->d_name, NULL, 10)))
			untraced++;
	}
	closedir(tasks);
	return untraced;
}

static bool process_is_ours(const char *pid, const char *comm, uint32_t namespace)
{
	char path[PATH_MAX];
	char name[64];

	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	if (!read_line(path, name, sizeof(name)) || strncmp(name, comm, COMM_SIZE - 1) != 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%s/ns/net", pid);
	return namespace_of(path) == namespace;
}

void scan_workers(struct workers *workers)
{
	DIR *processes = opendir("/proc");
	uint64_t untraced = 0;
	struct dirent *entry;

	if (!processes)
		return;
	while ((entry = readdir(processes))) {
		if (isdigit((unsigned char)entry->d_name[0]) &&
		    process_is_ours(entry->d_name, workers->comm, workers->namespace))
			untraced += trace_process(workers, entry->d_name);
	}
	closedir(processes);
	if (untraced > workers->untraced)
		workers->untraced = untraced;
}

uint64_t count_serving(const struct workers *workers)
{
	uint64_t serving = 0;

	for (size_t slot = 0; slot < workers->n_threads; slot++)
		serving += workers->object->bss->workers[slot].in_service;
	return serving;
}

void forget_services(struct workers *workers)
{
	for (size_t slot = 0; slot < workers->n_threads; slot++)
		forget_worker(&workers->object->bss->workers[slot], slot);
}

void record_last_messages(struct workers *workers)
{
	for (size_t slot = 0; slot < workers->n_threads; slot++)
		record_pending(workers, slot);
}
