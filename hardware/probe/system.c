// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "system.h"

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
