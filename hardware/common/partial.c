// SPDX-License-Identifier: MIT
#include <errno.h>
#include <limits.h>
#include <unistd.h>
#include "partial.h"

static const char *partial_name(char name[PATH_MAX], const char *path)
{
	snprintf(name, PATH_MAX, "%s.partial", path);
	return name;
}

FILE *partial_open(const char *path)
{
	char name[PATH_MAX];

	return fopen(partial_name(name, path), "we");
}

bool partial_close(FILE *file, const char *path)
{
	char name[PATH_MAX];
	int error;

	if (!fflush(file) && !ferror(file) && !rename(partial_name(name, path), path))
		return !fclose(file);
	error = errno;
	partial_drop(file, path);
	errno = error;
	return false;
}

void partial_drop(FILE *file, const char *path)
{
	char name[PATH_MAX];

	fclose(file);
	unlink(partial_name(name, path));
}
