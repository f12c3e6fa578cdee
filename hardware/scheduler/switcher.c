// SPDX-License-Identifier: MIT
/*
 * switcher changes the scheduler mode of a running proxy at the times of a plan.
 *
 * USAGE
 *   switcher run --plan FILE --log FILE [--fifo N] [--port 5060] [--ports 1] [--tcp] [--probe-control SOCKET] [--cpus 0,2-3]
 *                PID... [+ PID...]...
 *                            performs a plan. PIDs are all tasks of the proxy, including threads. A + stands between the
 *                            tasks of two instances of the proxy. The program runs until the plan's end or SIGTERM.
 *                            --ports is the number of consecutive ports of the proxy.
 *   switcher check --plan FILE
 *                            tries each mode on a child process and prints one line per mode: "0 ok", or
 *                            "2 EPERM: sched_setattr: Operation not permitted". `check` writes and restores the files,
 *                            and does not switch the probe.
 *   switcher speed [--seconds 0.05]
 *                            prints the speed index of this CPU: {"work":..,"cpu_ns":..,"wall_ns":..,"index":..}
 *
 *   The exit code is 0 on success, 1 for an error, and 2 for wrong usage or a wrong plan. An error prints one line on stderr.
 *
 * HOW IT WORKS
 *   plan.h describes the plan, and log.h describes the log. The program sets the mode of the first window and prints "ready".
 *   The time at which the kernel receives the first INVITE at the port is t0 + `first`. The program then sets the first mode
 * again, so that the first window begins with a switch, like every other window. All later windows count from t0.
 *   At the start of a window (an absolute timer on CLOCK_MONOTONIC), the program makes all settings. If the mode switches the
 * probe, the program waits for the probe's answer. After all settings are made, the program stores the time, and reads
 * the settings back (sched_getattr(2), read(2)). The program logs failed system calls and wrong values, and continues.
 * The program
 *   writes the log at its end. A task with slice 0 must have the same value as a child of switcher with slice 0. Before
 *   Linux 6.12, the kernel ignores slices without an error. Slices then read back as 0, which the log shows. At the
 *   end, the settings of the last window remain.
 *
 * OVERHEAD
 *   In a switch, the kernel requeues every task with changed settings, and every task that gets slice 0 again. A sample reads
 *   the CPU clock of each process and three files of /proc. The program takes samples 1 ms before each switch and once per
 *   period. benchmarks/switching.py measures the cost of switches and samples. Until the first INVITE, the kernel reads the
 *   clock for every packet.
 *
 * SEE kernel/sched/syscalls.c: sched_setattr(), __setscheduler_params(); net/packet/af_packet.c
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include "../common/arguments.h"
#include "run.h"
#include "speed.h"
#include "switches.h"

#define PORT       5060
#define SPEED_S    0.05
#define SPEED_MOST 60

static enum exit_code wrong_usage(const char *expected, const char *found)
{
	fprintf(stderr, "switcher: expected %s, found %.60s\n", expected, found ? found : "nothing");
	return EXIT_USAGE;
}

static bool read_cpus(const char *text, struct cpu_set *cpus)
{
	unsigned long first, last;

	do {
		if (!parse_cpu_range(&text, CPUS_MAX, &first, &last))
			return false;
		for (; first <= last; first++) {
			cpus->n += !cpus->held[first];
			cpus->held[first] = true;
		}
	} while (*text);
	return true;
}

/* Read the tasks of the proxy, with a + between two instances. Return the first wrong argument, or NULL. */
static const char *read_tasks(char **arguments, size_t count, struct proxy_tasks *tasks)
{
	long long number;

	tasks->pids = keep(calloc(count, sizeof(*tasks->pids)));
	tasks->instances = keep(calloc(count, sizeof(*tasks->instances)));
	tasks->n_instances = 1;
	for (size_t i = 0; i < count; i++) {
		if (!strcmp(arguments[i], "+")) {
			tasks->n_instances++;
			continue;
		}
		if (!parse_whole(arguments[i], 1, INT32_MAX, &number))
			return arguments[i];
		tasks->instances[tasks->n] = tasks->n_instances - 1;
		tasks->pids[tasks->n++] = (pid_t)number;
	}
	return NULL;
}

static enum exit_code run_command(int argc, char **argv)
{
	static const struct option known[] = {
		{ "plan", required_argument, NULL, 'p' },
		{ "log", required_argument, NULL, 'l' },
		{ "fifo", required_argument, NULL, 'f' },
		{ "port", required_argument, NULL, 'n' },
		{ "ports", required_argument, NULL, 'm' },
		{ "tcp", no_argument, NULL, 't' },
		{ "cpus", required_argument, NULL, 'c' },
		{ "probe-control", required_argument, NULL, 'r' },
		{ 0 },
	};
	struct run_options o = { .port = PORT };
	enum exit_code code;
	const char *wrong;
	int option;
	long long number, ports = 1;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (option == 'p')
			o.plan = optarg;
		else if (option == 'l')
			o.log = optarg;
		else if (option == 'r')
			o.probe_control = optarg;
		else if (option == 't')
			o.tcp = true;
		else if (option == 'f' && parse_whole(optarg, 1, 99, &number))
			o.fifo = (int)number;
		else if (option == 'f')
			return wrong_usage("--fifo from 1 to 99", optarg);
		else if (option == 'n' && parse_whole(optarg, 1, 65535, &number))
			o.port = (uint16_t)number;
		else if (option == 'n')
			return wrong_usage("--port from 1 to 65535", optarg);
		else if (option == 'm' && !parse_whole(optarg, 1, 65535, &ports))
			return wrong_usage("--ports from 1 to 65535", optarg);
		else if (option == 'c' && !read_cpus(optarg, &o.cpus))
			return wrong_usage("--cpus as 0,2-3", optarg);
		else if (option == '?')
			return EXIT_USAGE;
	}
	if (!o.plan || !o.log)
		return wrong_usage("--plan and --log", NULL);
	if (o.port + ports > 65536)
		return wrong_usage("--ports that end at port 65535 or below", NULL);
	o.last_port = (uint16_t)(o.port + ports - 1);
	wrong = read_tasks(&argv[optind], (size_t)(argc - optind), &o.tasks);
	if (wrong || !o.tasks.n)
		code = wrong_usage("the PID of a task", wrong ? wrong : argv[optind]);
	else
		code = run(&o);
	free(o.tasks.pids);
	free(o.tasks.instances);
	return code;
}

static void check_mode(const struct plan *plan, unsigned mode)
{
	struct switches switches;
	struct outcome outcome;
	pid_t child = start_sleeper();

	switches_open(&switches, plan, &child, 1, NULL);
	switches_make(&switches, mode, &outcome);
	switches_restore_files(&switches);
	switches_close(&switches);
	end_sleeper(child);
	printf("%u %s\n", mode, outcome.errors || outcome.unlike ? outcome.error : "ok");
}

static enum exit_code check_command(int argc, char **argv)
{
	static const struct option known[] = { { "plan", required_argument, NULL, 'p' }, { 0 } };
	const char *path = NULL;
	struct plan plan;
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (option == '?')
			return EXIT_USAGE;
		path = optarg;
	}
	if (!path || optind < argc)
		return wrong_usage("--plan FILE alone", optind < argc ? argv[optind] : NULL);
	if (!plan_read(&plan, path))
		return EXIT_USAGE;
	for (unsigned mode = 0; mode < plan.n_modes; mode++)
		if (plan.modes[mode].known)
			check_mode(&plan, mode);
	plan_free(&plan);
	return fflush(stdout) ? fail("standard output", strerror(errno)) : EXIT_GOOD;
}

static enum exit_code speed_command(int argc, char **argv)
{
	static const struct option known[] = { { "seconds", required_argument, NULL, 's' }, { 0 } };
	double seconds = SPEED_S;
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		char *end;

		if (option == '?')
			return EXIT_USAGE;
		seconds = strtod(optarg, &end);
		if (end == optarg || *end || !(seconds > 0 && seconds <= SPEED_MOST))
			return wrong_usage("--seconds above 0, up to 60", optarg);
	}
	if (optind < argc)
		return wrong_usage("--seconds alone", argv[optind]);
	return speed(seconds);
}

int main(int argc, char **argv)
{
	const char *command = argc > 1 ? argv[1] : NULL;

	if (command && !strcmp(command, "run"))
		return run_command(argc - 1, argv + 1);
	if (command && !strcmp(command, "check"))
		return check_command(argc - 1, argv + 1);
	if (command && !strcmp(command, "speed"))
		return speed_command(argc - 1, argv + 1);
	return wrong_usage("run, check or speed; the usage is at the start of switcher.c", command);
}
