// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "system.h"

void complain(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fprintf(stderr, "%s: ", program_invocation_short_name);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
}

void pause_ns(long ns)
{
	struct timespec interval = { .tv_nsec = ns };

	nanosleep(&interval, NULL);
}

uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
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
