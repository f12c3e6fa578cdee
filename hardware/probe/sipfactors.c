// SPDX-License-Identifier: MIT
/*
 * sipfactors counts how a proxy's processes wait for each other: waits for locks of the kernel and of the program, and
 * descriptors that one process passes to another.
 *
 * USAGE
 *   sipfactors --group PGID [--group PGID] --report FILE --ready FILE [--control SOCKET]
 *
 * WHAT IT DOES
 *   sipfactors attaches the programs of factors.bpf.c, and creates the file of --ready. At SIGTERM or SIGINT, it writes a
 *   report, one JSON object:
 *     proxy, others     for tasks of the process groups, and for all other tasks: the number and total ns of each kind of
 *                       wait, and the number of descriptors
 *     runs, run_ns      number and total time of the BPF programs' runs, if the kernel counts them (kernel.bpf_stats_enabled)
 *   SOCKET accepts commands, one per line, and answers each command with a line. `off` detaches the BPF programs, and `on`
 *   attaches them again. sipfactors pins no BPF object, so the kernel removes the BPF programs when sipfactors ends.
 *   The exit code is 0 on success, 1 with one line on stderr for an error, and 2 for wrong usage.
 *
 * sipfactors needs Linux 5.19, the initial PID namespace, BTF (CONFIG_DEBUG_INFO_BTF), and either root or CAP_BPF and
 * CAP_PERFMON.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "control.h"
#include "factors.h"
#include "factors.skel.h"
#include "../common/arguments.h"
#include "../common/json.h"
#include "runs.h"
#include "system.h"

#define FACTORS_NAME(name) #name,
static const char *const names[] = { FACTORS_WAITS(FACTORS_NAME) };

static struct factor_counts sum(const struct factor_counts *of_cpus)
{
	struct factor_counts total = { 0 };

	for (size_t cpu = 0; cpu < FACTORS_CPUS; cpu++) {
		for (int factor = 0; factor < FACTORS; factor++) {
			total.wait[factor].count += of_cpus[cpu].wait[factor].count;
			total.wait[factor].ns += of_cpus[cpu].wait[factor].ns;
		}
		total.descriptors += of_cpus[cpu].descriptors;
	}
	return total;
}

static void write_counts(FILE *file, const char *whose, struct factor_counts counts)
{
	fprintf(file, "\"%s\": {", whose);
	for (int factor = 0; factor < FACTORS; factor++)
		fprintf(file, "\"%s\": {\"count\": %llu, \"ns\": %llu}, ", names[factor],
			(unsigned long long)counts.wait[factor].count,
			(unsigned long long)counts.wait[factor].ns);
	fprintf(file, "\"descriptors\": %llu}, ", (unsigned long long)counts.descriptors);
}

static bool write_report(const char *path, const struct factors_bpf *object)
{
	FILE *file = fopen(path, "we");

	if (!file) {
		complain("cannot write %s: %s", path, strerror(errno));
		return false;
	}
	fprintf(file, "{");
	write_counts(file, "proxy", sum(object->bss->counts[1]));
	write_counts(file, "others", sum(object->bss->counts[0]));
	write_runs(file, object->obj);
	fprintf(file, "}\n");
	if (!fclose(file))
		return true;
	complain("cannot write %s: %s", path, strerror(errno));
	return false;
}

static int start_counting(struct factors_bpf *object)
{
	int error = -factors_bpf__attach(object);

	if (error)
		factors_bpf__detach(object);
	object->bss->since_ns = clock_ns();
	return error;
}

static void on_command(void *context, const char *command, char *answer)
{
	int error = 0;

	strcpy(answer, "ok");
	if (!strcmp(command, "off"))
		factors_bpf__detach(context);
	else if (!strcmp(command, "on"))
		error = start_counting(context);
	else
		snprintf(answer, CONTROL_ANSWER, "error: expected off or on, found \"%s\"", command);
	if (error)
		snprintf(answer, CONTROL_ANSWER, "error: cannot attach: %s", strerror(error));
}

/* Execute the commands of clients until a signal arrives. */
static void run_commands(struct control *control, int signals, struct factors_bpf *object)
{
	struct pollfd fds[1 + CONTROL_FDS] = { { .fd = signals, .events = POLLIN } };

	while (!fds[0].revents) {
		list_control(control, fds + 1);
		if (poll(fds, 1 + CONTROL_FDS, -1) > 0)
			serve_control(control, fds + 1, on_command, object);
	}
}

static int usage(void)
{
	complain("usage: sipfactors --group PGID [--group PGID] --report FILE --ready FILE [--control "
		 "SOCKET]");
	return EXIT_USAGE;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "group", required_argument, NULL, 'g' },
		{ "report", required_argument, NULL, 'r' },
		{ "ready", required_argument, NULL, 'y' },
		{ "control", required_argument, NULL, 'c' },
		{ 0 },
	};
	const char *report = NULL, *ready = NULL, *socket = NULL;
	struct factors_bpf *object;
	struct control control = { 0 };
	int groups[FACTORS_GROUPS] = { 0 }, n_groups = 0, option, error, signals_fd;
	long long group;
	sigset_t signals = block_signals();
	bool good;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'g' && n_groups < FACTORS_GROUPS && parse_whole(optarg, 1, INT32_MAX, &group))
			groups[n_groups++] = (int)group;
		else if (option == 'r')
			report = optarg;
		else if (option == 'y')
			ready = optarg;
		else if (option == 'c')
			socket = optarg;
		else
			return usage();
	}
	if (!n_groups || !report || !ready || optind < argc)
		return usage();
	signals_fd = signalfd(-1, &signals, SFD_CLOEXEC);
	libbpf_set_print(NULL);
	if (!is_in_initial_pid_namespace())
		return EXIT_BAD;
	object = factors_bpf__open();
	if (!object) {
		complain("cannot open the BPF programs: %s", strerror(errno));
		return EXIT_BAD;
	}
	for (int i = 0; i < n_groups; i++)
		object->rodata->cfg_groups[i] = groups[i];
	error = -factors_bpf__load(object);
	if (!error)
		error = start_counting(object);
	if (error) {
		complain("cannot load and attach the programs: %s (Linux 5.19, BTF and CAP_BPF)",
			 strerror(error));
		factors_bpf__destroy(object);
		return EXIT_BAD;
	}
	good = open_control(&control, socket) && write_ready(ready);
	if (good)
		run_commands(&control, signals_fd, object);
	close_control(&control);
	factors_bpf__detach(object);
	good = good && write_report(report, object);
	factors_bpf__destroy(object);
	return good ? EXIT_GOOD : EXIT_BAD;
}
