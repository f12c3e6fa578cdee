/* SPDX-License-Identifier: MIT */
/*
 * A plan lists scheduler modes, and the windows of time in which each mode is active. The plan is a text file with one item
 * per line. A # at the start of a word begins a comment.
 *
 *   mode 0 task other nice 0 priority 0 slice 0     POLICY other|batch|fifo|rr; slice in ns, 0: the kernel's base slice
 *   mode 0 file /sys/kernel/debug/sched/base_slice_ns 3000000     any number of files, written in this order
 *   mode 3 probe off                                off or on
 *   first 1234567           ns from t0 to the first INVITE
 *   sample 50000000         period of the samples in ns
 *   window 0 0              start in ns after t0, and number of the mode; in ascending order
 *   window 500000000 1
 *   end 60000000000         ns after t0
 *
 * If a mode does not name a setting, the mode uses the value that the setting had at the start of the program. For the
 * probe, this value is `on`. Every mode therefore determines all settings, and switching back to a mode restores all
 * settings.
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
	unsigned file; /* index of the file in `files` of the plan */
	char *value;   /* the text to write, with single spaces between words */
};

struct plan_mode {
	bool known;
	bool has_task;
	bool probe_off;
	struct attributes task;
	unsigned n_writes;
	struct plan_write writes[FILES_MAX]; /* the writes of the mode, in the order of the plan */
};

struct plan_window {
	uint64_t start_ns;
	unsigned mode;
	unsigned line; /* number of the window's line in the plan file */
};

struct plan {
	uint64_t first_ns, sample_ns, end_ns;
	unsigned n_modes; /* 1 + the highest number of a mode */
	struct plan_mode modes[MODES_MAX];
	unsigned n_files;
	char *files[FILES_MAX]; /* paths of the files */
	bool has_probe;         /* at least one mode has a line `probe on` or `probe off` */
	size_t n_windows;
	struct plan_window *windows;
};

/* Read a plan. If the plan is wrong, print the file, the line, the expected and the found word, and return false. */
bool plan_read(struct plan *plan, const char *path);
void plan_free(struct plan *plan);
#endif
