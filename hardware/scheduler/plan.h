/* SPDX-License-Identifier: MIT */
/*
 * The plan: modes, and the windows in which each of them is in force. Text, one item a line; what follows a # at
 * the start of a word is a comment.
 *
 *   mode 0 task other nice 0 priority 0 slice 0     POLICY other|batch|fifo|rr; slice in ns, 0: the kernel's base slice
 *   mode 0 file /sys/kernel/debug/sched/base_slice_ns 3000000     any number of them, written in this order
 *   mode 3 probe off                                off or on
 *   first 1234567           ns from t0 to the first INVITE
 *   sample 50000000         period of the samples, ns
 *   window 0 0              start in ns after t0, number of the mode; ascending
 *   window 500000000 1
 *   end 60000000000         ns after t0
 *
 * What a mode does not name is as it was when the program started, for the probe `on`: so a switch back is one.
 */
#ifndef SIPSCHED_PLAN_H
#define SIPSCHED_PLAN_H
#include <stdbool.h>
#include <stddef.h>
#include "attributes.h"

#define MODES_MAX   64
#define FILES_MAX   16
#define SAMPLES_MAX 10000000

struct plan_write {
	unsigned file; /* index into files of the plan */
	char *value;   /* its words, one space between them */
};

struct plan_mode {
	bool known;
	bool has_task;
	bool probe_off;
	struct attributes task;
	unsigned n_writes;
	struct plan_write writes[FILES_MAX]; /* in order of writing */
};

struct plan_window {
	uint64_t start_ns;
	unsigned mode;
	unsigned line; /* of the plan file */
};

struct plan {
	uint64_t first_ns, sample_ns, end_ns;
	unsigned n_modes; /* 1 + the highest number */
	struct plan_mode modes[MODES_MAX];
	unsigned n_files;
	char *files[FILES_MAX]; /* paths */
	bool has_probe;         /* a mode switches it */
	size_t n_windows;
	struct plan_window *windows;
};

/* False: one line on stderr says file, line, what was expected and what was found. */
bool plan_read(struct plan *plan, const char *path);
void plan_free(struct plan *plan);
#endif
