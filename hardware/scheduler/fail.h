/* SPDX-License-Identifier: MIT */
/* What switcher says when it cannot go on, in one line on stderr, and its exit codes. */
#ifndef SIPSCHED_FAIL_H
#define SIPSCHED_FAIL_H
#include <stdio.h>
#include <stdlib.h>

enum exit_code {
	EXIT_GOOD,
	EXIT_BAD,
	EXIT_USAGE
};

static inline enum exit_code fail(const char *what, const char *why)
{
	fprintf(stderr, "switcher: %s: %s\n", what, why);
	return EXIT_BAD;
}

/* Memory that has been allocated, or the end. */
static inline void *keep(void *memory)
{
	if (!memory)
		exit(fail("memory", "none is left"));
	return memory;
}
#endif
