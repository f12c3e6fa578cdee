/* SPDX-License-Identifier: MIT */
/*
 * Switches: all tasks, files and the probe get the settings of a mode, and the settings are read back.
 *
 * Attributes are computed and files are opened beforehand. A switch is one system call per file, then one for the probe, and then
 * one per task. Files come first, because slice 0 takes the base slice that is in force at that time.
 */
#ifndef SIPSCHED_SWITCHES_H
#define SIPSCHED_SWITCHES_H
#include <stdbool.h>
#include "plan.h"

#define ERROR_MAX 256

/* The result of a switch. */
struct outcome {
	uint64_t began_ns;
	/* All settings are made and the probe has answered, but they are not read back yet. */
	uint64_t done_ns;
	unsigned errors;       /* failed system calls */
	unsigned unlike;       /* tasks and files that read back with another value */
	char error[ERROR_MAX]; /* text of the first failure or difference */
};

struct target_file {
	const char *path;
	int fd;         /* descriptor or -errno */
	char *original; /* NULL if the file is not readable */
};

struct switches {
	const struct plan *plan;
	struct plan_mode modes[MODES_MAX]; /* completed by the original values that a mode does not name */
	struct target_file files[FILES_MAX];
	int probe; /* socket, -errno, or NO_PROBE */
	unsigned n_tasks;
	const pid_t *tasks;
	struct attributes *wanted; /* by mode and task */
	int *set_errors;           /* by task, for the current switch */
	pid_t model;               /* a child process that shows the effect of slice 0 */
};

/* `probe_control` is the path of a socket, or NULL. What cannot be opened makes each switch fail. */
void switches_open(struct switches *switches, const struct plan *plan, const pid_t *tasks, unsigned n_tasks,
		   const char *probe_control);
void switches_make(struct switches *switches, unsigned mode, struct outcome *outcome);
/* Restore the original value of each file. */
void switches_restore_files(struct switches *switches);
void switches_close(struct switches *switches);

/* Start a child that sleeps until it is killed or its parent ends. Return -1 and set errno if that fails. */
pid_t start_sleeper(void);
void end_sleeper(pid_t sleeper);
#endif
