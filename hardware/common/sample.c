// SPDX-License-Identifier: MIT
#include <inttypes.h>
#include "sample.h"

static const struct {
	const char *name;
	size_t offset;
} COLUMNS[] = {
	{ "t_ns", offsetof(struct sample, t_ns) },
	{ "cpu_ns", offsetof(struct sample, cpu_ns) },
	{ "datagrams", offsetof(struct sample, datagrams) },
	{ "refused", offsetof(struct sample, refused) },
	{ "steal_ticks", offsetof(struct sample, steal_ticks) },
	{ "idle_ticks", offsetof(struct sample, idle_ticks) },
	{ "softirq_ticks", offsetof(struct sample, softirq_ticks) },
	{ "time_squeeze", offsetof(struct sample, time_squeeze) },
};

void samples_write(FILE *file, const struct sample *samples, size_t n)
{
	for (size_t column = 0; column < sizeof(COLUMNS) / sizeof(*COLUMNS); column++) {
		fprintf(file, "%s\n\"%s\":[", column ? "," : "{", COLUMNS[column].name);
		for (size_t i = 0; i < n; i++)
			fprintf(file, "%s%" PRIu64, i ? "," : "",
				*(const uint64_t *)((const char *)&samples[i] + COLUMNS[column].offset));
		fputc(']', file);
	}
	fputc('}', file);
}
