/* SPDX-License-Identifier: MIT */
/*
 * Functions that set all tasks, all files and the probe to the settings of a mode, and read the settings back.
 *
 * To keep switches short, the program computes all attributes and opens all files before the first switch. A switch is one
 * system call per file, then one for the probe, and then one per task. Files come first, because a file may change the
 * base slice, which a task with slice 0 gets at its system call.
 */
#ifndef SIPSCHED_SWITCHES_H
#define SIPSCHED_SWITCHES_H
#include <stdbool.h>
#include "plan.h"

#define ERROR_MAX 256

/* The result of one switch to a mode. */
struct outcome {
	uint64_t began_ns;
	/* Time at which all settings were made and the probe had answered, but before the settings are read back. */
	uint64_t done_ns;
	unsigned errors; /* number of failed system calls */
	unsigned unlike; /* number of tasks and files whose value after the switch is not the mode's value */
	char error[ERROR_MAX]; /* text about the first failed call or the first wrong value */
};

struct target_file {
	const char *path;
	int fd;         /* descriptor of the open file, or -errno */
	char *original; /* content when the program started; NULL if it could not be read */
};

struct switches {
	const struct plan *plan;
	/* The plan's modes, completed by the original values of files that a mode does not name. */
	struct plan_mode modes[MODES_MAX];
	struct target_file files[FILES_MAX];
	int probe; /* socket of the probe, -errno, or NO_PROBE */
	unsigned n_tasks;
	const pid_t *tasks;
	struct attributes *wanted; /* attributes to set; index: mode * n_tasks + task */
	int *set_errors;           /* per task, the result of the current switch: 0 or an errno value */
	/* A sleeping child process with slice 0. For its slice, sched_getattr(2) reports the kernel's base slice. */
	pid_t model;
};

/*
 * Prepare all switches. `probe_control` is the path of the probe's socket, or NULL. If a file or the socket cannot be
 * opened, each switch logs an error.
 */
void switches_open(struct switches *switches, const struct plan *plan, const pid_t *tasks, unsigned n_tasks,
		   const char *probe_control);
void switches_make(struct switches *switches, unsigned mode, struct outcome *outcome);
/* Write to each file the value that it had when switches_open() was called. */
void switches_restore_files(struct switches *switches);
void switches_close(struct switches *switches);

/* Start a child that sleeps until it is killed or its parent ends. Return -1 and set errno on failure. */
pid_t start_sleeper(void);
void end_sleeper(pid_t sleeper);
#endif
