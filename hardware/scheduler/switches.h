/* SPDX-License-Identifier: MIT */
/*
 * Switches: all tasks, files and the probe brought to a mode, and read back.
 *
 * Attributes are made up and files opened beforehand; a switch is one system call for each file, for the probe and
 * for each task, in this order: files first, for slice 0 takes the base slice that is then in force.
 */
#ifndef SIPSCHED_SWITCHES_H
#define SIPSCHED_SWITCHES_H
#include <stdbool.h>
#include "plan.h"

#define ERROR_MAX 256

/* What a switch came to. */
struct outcome {
	uint64_t began_ns;
	uint64_t done_ns;      /* all is set, the probe has answered; it is read back after that */
	unsigned errors;       /* system calls that failed */
	unsigned unlike;       /* tasks and files that read back otherwise than asked */
	char error[ERROR_MAX]; /* the first of either */
};

struct target_file {
	const char *path;
	int fd;      /* or -errno */
	char *found; /* when it was opened; NULL: not readable */
};

struct switches {
	const struct plan *plan;
	struct plan_mode modes[MODES_MAX]; /* with everything that another mode names */
	struct target_file files[FILES_MAX];
	int probe; /* socket, -errno, or NO_PROBE */
	unsigned n_tasks;
	const pid_t *tasks;
	struct attributes *wanted; /* by mode and task */
	int *set_errors;           /* by task, of the switch being made */
	pid_t model;               /* a child that shows what slice 0 comes to */
};

/* The probe's control is a socket's path; NULL: none. What cannot be opened fails each switch. */
void switches_open(struct switches *switches, const struct plan *plan, const pid_t *tasks, unsigned n_tasks,
		   const char *probe_control);
void switches_make(struct switches *switches, unsigned mode, struct outcome *outcome);
/* Write into each file what was found in it. */
void switches_restore_files(struct switches *switches);
void switches_close(struct switches *switches);

/* A child that sleeps until it is killed, or its parent has ended; -1 and errno. */
pid_t start_sleeper(void);
void end_sleeper(pid_t sleeper);
#endif
