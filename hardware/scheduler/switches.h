/* SPDX-License-Identifier: MIT */
/*
 * A switch sets all tasks, all files and the probe to the settings of a mode, and reads the settings back.
 *
 * All attributes are computed and all files are opened before the first switch. A switch is one system call per file,
 * then one for the probe, and then one per task. Files come first, because slice 0 takes the base slice that is in
 * force at that time.
 */
#ifndef SIPSCHED_SWITCHES_H
#define SIPSCHED_SWITCHES_H
#include <stdbool.h>
#include "plan.h"

#define ERROR_MAX 256

/* The result of one switch to a mode. */
struct outcome {
	uint64_t began_ns;
	/* Time at which all settings are made and the probe has answered, before the settings are read back. */
	uint64_t done_ns;
	unsigned errors;       /* number of failed system calls */
	unsigned unlike;       /* number of tasks and files whose value, read back, differs from the mode's */
	char error[ERROR_MAX]; /* text that describes the first error or the first different value */
};

struct target_file {
	const char *path;
	int fd;         /* descriptor of the open file, or -errno */
	char *original; /* content at the start; NULL if the file is not readable */
};

struct switches {
	const struct plan *plan;
	/* The plan's modes; settings that a mode does not name have their original values. */
	struct plan_mode modes[MODES_MAX];
	struct target_file files[FILES_MAX];
	int probe; /* socket of the probe, -errno, or NO_PROBE */
	unsigned n_tasks;
	const pid_t *tasks;
	struct attributes *wanted; /* attributes for each mode and task */
	int *set_errors; /* result of setting each task in the current switch: 0 or an errno value */
	pid_t model;     /* a sleeping child process with slice 0, from which the base slice is read */
};

/*
 * Prepare all switches. `probe_control` is the path of a socket, or NULL. A target that fails to open fails in each
 * switch.
 */
void switches_open(struct switches *switches, const struct plan *plan, const pid_t *tasks, unsigned n_tasks,
		   const char *probe_control);
void switches_make(struct switches *switches, unsigned mode, struct outcome *outcome);
/* Write the original value to each file. */
void switches_restore_files(struct switches *switches);
void switches_close(struct switches *switches);

/* Start a child that sleeps until it is killed or its parent ends. Return -1 and set errno on failure. */
pid_t start_sleeper(void);
void end_sleeper(pid_t sleeper);
#endif
