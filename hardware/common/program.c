// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "program.h"

volatile sig_atomic_t stop_asked;

void complain(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fprintf(stderr, "%s: ", program_invocation_short_name);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
}

int fail(const char *what, const char *why)
{
	complain("%s: %s", what, why);
	return EXIT_BAD;
}

void *keep(void *memory)
{
	if (!memory) {
		complain("not enough memory");
		exit(EXIT_BAD);
	}
	return memory;
}

bool write_ready(const char *path)
{
	FILE *file = fopen(path, "we");

	if (file && !fclose(file))
		return true;
	complain("cannot write %s: %s", path, strerror(errno));
	return false;
}

static void on_signal(int number)
{
	(void)number;
	stop_asked = 1;
}

void catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

sigset_t block_signals(void)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	return signals;
}
