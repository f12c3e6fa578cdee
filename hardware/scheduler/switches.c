// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../common/clock.h"
#include "../common/program.h"
#include "probe_control.h"
#include "switches.h"

#define NO_PROBE    (-4096) /* no negative errno value, because these values are above -4096 */
#define CONTENT_MAX 4096

static bool is_fair(const struct attributes *task)
{
	return task->policy != SCHED_FIFO && task->policy != SCHED_RR;
}

static void note_error(struct outcome *outcome, int error, const char *what)
{
	const char *name = strerrorname_np(error);

	if (!outcome->errors++ && !outcome->unlike)
		snprintf(outcome->error, sizeof(outcome->error), "%s: %.80s: %s", name ? name : "unknown",
			 what, strerror(error));
}

static void note_unlike(struct outcome *outcome, const char *what, const char *asked, const char *actual)
{
	if (!outcome->unlike++ && !outcome->errors)
		snprintf(outcome->error, sizeof(outcome->error), "%.60s: asked %.60s, read back %.60s", what,
			 asked, actual);
}

pid_t start_sleeper(void)
{
	pid_t parent = getpid(), child = fork();

	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (getppid() == parent)
		pause();
	_exit(0);
}

void end_sleeper(pid_t sleeper)
{
	if (sleeper > 0 && !kill(sleeper, SIGKILL))
		waitpid(sleeper, NULL, 0);
}

/*
 * Return the slice in ns that sched_getattr(2) now reports for a task with slice 0. This is the kernel's base slice, or 0
 * on a kernel without slices per task.
 */
static uint64_t base_slice(const struct switches *switches)
{
	struct attributes model = { .size = sizeof(model), .policy = SCHED_OTHER };

	if (attributes_set(switches->model, &model) || attributes_get(switches->model, &model))
		return UINT64_MAX;
	return model.runtime;
}

/* Replace each run of white space in a text by a single space. */
static void squeeze(char *text)
{
	char *to = text, *rest = NULL;

	for (char *word = strtok_r(text, " \t\r\n", &rest); word; word = strtok_r(NULL, " \t\r\n", &rest)) {
		size_t length = strlen(word);

		if (to != text)
			*to++ = ' ';
		memmove(to, word, length);
		to += length;
	}
	*to = '\0';
}

/* Read a file. Open the file for each read, because a debugfs descriptor cannot seek and returns its value only once. */
static bool read_content(const char *path, char content[CONTENT_MAX])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, content, CONTENT_MAX - 1);
	if (close(fd) || n < 0)
		return false;
	content[n] = '\0';
	squeeze(content);
	return true;
}

/* Write at the offset 0, which sysctls require and debugfs ignores. Return 0 or an errno value. */
static int write_content(int fd, const char *content)
{
	size_t size = strlen(content);
	ssize_t n = pwrite(fd, content, size, 0);

	if (n < 0 && errno == ESPIPE)
		n = write(fd, content, size);
	return n == (ssize_t)size ? 0 : n < 0 ? errno : EIO;
}

static void open_file(struct target_file *file, const char *path)
{
	char content[CONTENT_MAX];

	file->path = path;
	file->fd = open(path, O_WRONLY | O_CLOEXEC);
	file->original = NULL;
	if (file->fd < 0)
		file->fd = -errno;
	else if (read_content(path, content))
		file->original = keep(strdup(content));
}

/* Let a mode write the original value to each file that the mode does not name, so that every mode sets all files. */
static void complete_mode(struct switches *switches, struct plan_mode *mode)
{
	unsigned named = mode->n_writes;

	for (unsigned file = 0; file < switches->plan->n_files; file++) {
		unsigned i = 0;

		while (i < named && mode->writes[i].file != file)
			i++;
		if (i == named && switches->files[file].original)
			mode->writes[mode->n_writes++] =
				(struct plan_write){ file, switches->files[file].original };
	}
}

void switches_open(struct switches *switches, const struct plan *plan, const pid_t *tasks, unsigned n_tasks,
		   const char *probe_control)
{
	uint64_t base;

	*switches = (struct switches){ .plan = plan, .tasks = tasks, .n_tasks = n_tasks };
	memcpy(switches->modes, plan->modes, sizeof(plan->modes));
	switches->wanted = keep(calloc((size_t)plan->n_modes * n_tasks + 1, sizeof(*switches->wanted)));
	switches->set_errors = keep(calloc((size_t)n_tasks + 1, sizeof(*switches->set_errors)));
	switches->probe = probe_control ? probe_connect(probe_control) : NO_PROBE;
	for (unsigned i = 0; i < plan->n_files; i++)
		open_file(&switches->files[i], plan->files[i]);
	switches->model = start_sleeper();
	base = base_slice(switches);
	for (unsigned i = 0; i < n_tasks; i++) {
		struct attributes original = { 0 };

		if (attributes_get(tasks[i], &original))
			original.policy = SCHED_OTHER;
		original.size = sizeof(original);
		original.flags = 0;
		if (original.runtime == base)
			original.runtime = 0;
		for (unsigned mode = 0; mode < plan->n_modes; mode++)
			switches->wanted[mode * n_tasks + i] =
				plan->modes[mode].has_task ? plan->modes[mode].task : original;
	}
	for (unsigned mode = 0; mode < plan->n_modes; mode++)
		complete_mode(switches, &switches->modes[mode]);
}

static void await_probe(int probe, int error, struct outcome *outcome)
{
	char answer[PROBE_ANSWER_MAX] = "";

	if (!error)
		error = probe_wait(probe, answer);
	if (error)
		note_error(outcome, error, "the probe's control");
	else if (strcmp(answer, "ok"))
		note_error(outcome, EIO, answer);
}

static void set_all(struct switches *switches, const struct plan_mode *mode, const struct attributes *wanted,
		    struct outcome *outcome)
{
	int probe_error;

	for (unsigned i = 0; i < mode->n_writes; i++) {
		const struct plan_write *write = &mode->writes[i];
		int fd = switches->files[write->file].fd;
		int error = fd < 0 ? -fd : write_content(fd, write->value);

		if (error)
			note_error(outcome, error, switches->files[write->file].path);
	}
	probe_error = switches->probe < 0 ? -switches->probe : probe_send(switches->probe, !mode->probe_off);
	for (unsigned i = 0; i < switches->n_tasks; i++)
		switches->set_errors[i] = attributes_set(switches->tasks[i], &wanted[i]) ? errno : 0;
	if (switches->probe != NO_PROBE)
		await_probe(switches->probe, probe_error, outcome);
}

static void read_file_back(const struct target_file *file, const char *asked, struct outcome *outcome)
{
	char content[CONTENT_MAX];

	if (file->fd < 0)
		return;
	if (!read_content(file->path, content))
		note_error(outcome, errno, file->path);
	else if (strcmp(content, asked))
		note_unlike(outcome, file->path, asked, content);
}

static void print_task(char *text, size_t size, const struct attributes *task)
{
	snprintf(text, size, "%s nice %d priority %u slice %" PRIu64, policy_name(task->policy), task->nice,
		 task->priority, task->runtime);
}

static void read_task_back(pid_t pid, const struct attributes *wanted, uint64_t base, struct outcome *outcome)
{
	struct attributes asked = *wanted, actual = { 0 };
	char asked_text[80], actual_text[80];

	if (attributes_get(pid, &actual)) {
		note_error(outcome, errno, "sched_getattr");
		return;
	}
	if (is_fair(&asked) && !asked.runtime)
		asked.runtime = base;
	if (actual.policy == asked.policy &&
	    (is_fair(&asked) ? actual.nice == asked.nice && actual.runtime == asked.runtime
			     : actual.priority == asked.priority))
		return;
	print_task(asked_text, sizeof(asked_text), &asked);
	print_task(actual_text, sizeof(actual_text), &actual);
	note_unlike(outcome, "task", asked_text, actual_text);
}

void switches_make(struct switches *switches, unsigned number, struct outcome *outcome)
{
	const struct plan_mode *mode = &switches->modes[number];
	const struct attributes *wanted = &switches->wanted[(size_t)number * switches->n_tasks];
	uint64_t base;

	*outcome = (struct outcome){ .began_ns = clock_ns() };
	set_all(switches, mode, wanted, outcome);
	outcome->done_ns = clock_ns();
	for (unsigned i = 0; i < mode->n_writes; i++)
		read_file_back(&switches->files[mode->writes[i].file], mode->writes[i].value, outcome);
	base = base_slice(switches);
	for (unsigned i = 0; i < switches->n_tasks; i++) {
		if (switches->set_errors[i])
			note_error(outcome, switches->set_errors[i], "sched_setattr");
		else
			read_task_back(switches->tasks[i], &wanted[i], base, outcome);
	}
}

void switches_restore_files(struct switches *switches)
{
	for (unsigned i = 0; i < switches->plan->n_files; i++) {
		const struct target_file *file = &switches->files[i];

		int error = file->original ? write_content(file->fd, file->original) : 0;

		if (error)
			fail(file->path, strerror(error));
	}
}

void switches_close(struct switches *switches)
{
	end_sleeper(switches->model);
	for (unsigned i = 0; i < switches->plan->n_files; i++) {
		free(switches->files[i].original);
		if (switches->files[i].fd >= 0)
			close(switches->files[i].fd);
	}
	if (switches->probe >= 0)
		close(switches->probe);
	free(switches->wanted);
	free(switches->set_errors);
}
