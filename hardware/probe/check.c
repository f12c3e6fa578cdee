// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "attach.h"
#include "check.h"
#include "../common/json.h"
#include "report.h"
#include "system.h"

#define LOCKDOWN_PATH "/sys/kernel/security/lockdown"

static void print_hook(const struct hook *hook, const struct hook_state *state, bool last)
{
	printf("    {\"name\": \"%s/%s\", \"available\": %s, \"required\": %s, \"needed_for\": ",
	       hook_type_name(hook->type), hook->target, state->available ? "true" : "false",
	       hook_is_optional(hook) ? "false" : "true");
	write_json_string(stdout, hook->needed_for);
	fputs(", \"reason\": ", stdout);
	write_json_string(stdout, state->reason);
	puts(last ? "}" : "},");
}

static void print_mode(const char *name, bool can_run, const char *reason, bool last)
{
	printf("    \"%s\": {\"can_run\": %s, \"reason\": ", name, can_run ? "true" : "false");
	write_json_string(stdout, reason);
	puts(last ? "}" : "},");
}

int check(const struct options *options)
{
	struct hook_state states[N_HOOKS];
	char exact_reason[REASON_SIZE];
	char tracepoint_reason[REASON_SIZE];
	char stream_reason[REASON_SIZE];
	char reason[REASON_SIZE];
	char lockdown[64];
	struct utsname kernel;
	bool exact;
	bool tracepoint;
	bool stream;

	if (choose_programs(states, reason, sizeof(reason))) {
		for (size_t i = 0; i < N_HOOKS; i++)
			try_hook(options, &hooks[i], &states[i]);
	}
	exact = mode_can_run(states, MODE_EXACT, exact_reason, sizeof(exact_reason));
	tracepoint = mode_can_run(states, MODE_TRACEPOINT, tracepoint_reason, sizeof(tracepoint_reason));
	stream = mode_can_run(states, MODE_STREAM, stream_reason, sizeof(stream_reason));
	if (reason[0]) {
		/* If this process can load no BPF program at all, all modes fail for the same reason. */
		memcpy(exact_reason, reason, sizeof(reason));
		memcpy(tracepoint_reason, reason, sizeof(reason));
		memcpy(stream_reason, reason, sizeof(reason));
	}
	uname(&kernel);
	printf("{\n  \"version\": %d,\n  \"kernel\": ", REPORT_VERSION);
	write_json_string(stdout, kernel.release);
	fputs(",\n  \"lockdown\": ", stdout);
	if (read_line(LOCKDOWN_PATH, lockdown, sizeof(lockdown)))
		write_json_string(stdout, lockdown);
	else
		fputs("null", stdout);
	printf(",\n  \"btf\": %s,\n  \"root\": %s,\n  \"port\": %lu,\n  \"hooks\": [\n",
	       access(BTF_PATH, R_OK) ? "false" : "true", geteuid() ? "false" : "true", options->port);
	for (size_t i = 0; i < N_HOOKS; i++)
		print_hook(&hooks[i], &states[i], i + 1 == N_HOOKS);
	puts("  ],\n  \"modes\": {");
	print_mode("exact", exact, exact_reason, false);
	print_mode("tracepoint", tracepoint, tracepoint_reason, false);
	print_mode("stream", stream, stream_reason, true);
	fputs("  },\n  \"best\": ", stdout);
	puts(exact ? "\"exact\"\n}" : tracepoint ? "\"tracepoint\"\n}" : "null\n}");
	return exact || tracepoint ? EXIT_SUCCESS : EXIT_FAILURE;
}
