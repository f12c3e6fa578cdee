// SPDX-License-Identifier: MIT
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "system.h"

#ifndef SILENCE_S
#define SILENCE_S 120
#endif
#define TEXT_OF(number)  #number
#define DIGITS_OF(macro) TEXT_OF(macro)

void pause_ns(long ns)
{
	struct timespec interval = { .tv_nsec = ns };

	nanosleep(&interval, NULL);
}

bool read_line(const char *path, char *line, size_t size)
{
	FILE *file = fopen(path, "re");
	bool found;

	if (!file)
		return false;
	found = fgets(line, (int)size, file) != NULL;
	fclose(file);
	if (found)
		line[strcspn(line, "\n")] = 0;
	return found;
}

/*
 * End the program at once, even while it waits to write its output. The kernel then removes its BPF programs. If the write
 * to stderr has to wait, too, a second SIGALRM ends the program after a second.
 */
static void on_silence(int number)
{
	static const char text[] = "sipprobe: no input for " DIGITS_OF(SILENCE_S) " s\n";
	ssize_t written;

	(void)number;
	alarm(1);
	written = write(STDERR_FILENO, text, sizeof(text) - 1);
	(void)written;
	_exit(EXIT_BAD);
}

void expect_input(void)
{
	const struct sigaction action = { .sa_handler = on_silence, .sa_flags = SA_RESETHAND | SA_NODEFER };

	sigaction(SIGALRM, &action, NULL);
	alarm(SILENCE_S);
}

uint32_t namespace_of(const char *path)
{
	struct stat status;

	return stat(path, &status) ? 0 : (uint32_t)status.st_ino;
}

uint32_t own_network_namespace(void)
{
	return namespace_of("/proc/self/ns/net");
}

bool is_in_initial_pid_namespace(void)
{
	if (namespace_of("/proc/self/ns/pid") == INITIAL_PID_NS)
		return true;
	complain("not in the initial PID namespace, where process groups have the same ids as in the kernel");
	return false;
}
