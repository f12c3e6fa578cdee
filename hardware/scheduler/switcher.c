// SPDX-License-Identifier: MIT
/*
 * switcher: brings a proxy that serves from one scheduler mode to another, at instants drawn beforehand.
 *
 * USAGE
 *   switcher run --plan FILE --log FILE [--fifo N] [--port 5060] [--tcp] [--probe-control SOCKET] [--cpus 0,2-3] PID...
 *                            PIDs are all tasks of the proxy, threads too. Runs until the plan's end or SIGTERM.
 *   switcher check --plan FILE
 *                            tries each mode on a child of its own, one line a mode: "0 ok", or
 *                            "2 EPERM: sched_setattr: Operation not permitted". Files are written and then
 *                            brought back; the probe is not asked.
 *   switcher speed [--seconds 0.05]
 *                            the speed index of this CPU: {"work":..,"cpu_ns":..,"wall_ns":..,"index":..}
 *
 *   Exit code 0; 1: it could not be done, one line says why; 2: wrong usage or plan, one line says what was expected.
 *
 * HOW
 *   plan.h has the plan, log.h the log. The first window's mode is set at once, then "ready" is printed. The first INVITE
 *   that arrives at the port, by the kernel's time of receipt, is t0 + `first`; then the first mode is set once more,
 *   as its window begins with a switch like any other. Every later window is counted from t0.
 *   At its instant (an absolute timer on CLOCK_MONOTONIC) all is set, the probe's answer is awaited if it is switched,
 *   the time is taken, all is read back (sched_getattr(2), read(2)). What fails or reads back otherwise stands in the log for its window, and the
 *   program goes on. While it runs it writes nothing but the settings.
 *   With slice 0 a task has to read back what a child of switcher's own reads back with slice 0. Before Linux 6.12
 *   slices are ignored without an error: they read back as 0, which is logged.
 *   Settings stay as the last window left them.
 *
 * OVERHEAD
 *   A switch requeues every task whose settings change, and any that gets slice 0 again. A sample reads the CPU clock of
 *   each process and three files of /proc, 1 ms before a switch and at the plan's period; benchmarks/switching.py has
 *   the cost of both. Until the first INVITE the kernel reads the clock for every packet.
 *
 * SEE kernel/sched/syscalls.c: sched_setattr(), __setscheduler_params(); net/packet/af_packet.c
 */
#include <errno.h>
#include <getopt.h>
#include <string.h>
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

static bool read_whole(const char *text, long least, long most, long *value)
{
	char *end;

	errno = 0;
	*value = strtol(text, &end, 10);
	return end != text && !*end && !errno && *value >= least && *value <= most;
}

/* 0,2-3 */
static bool read_cpus(const char *text, struct cpu_set *cpus)
{
	char *end;

	do {
		unsigned long first = strtoul(text, &end, 10), last = first;

		if (end == text || *text == '-')
			return false;
		if (*end == '-') {
			text = end + 1;
			last = strtoul(text, &end, 10);
			if (end == text)
				return false;
		}
		if (first > last || last >= CPUS_MAX || (*end && *end != ','))
			return false;
		for (; first <= last; first++) {
			cpus->n += !cpus->held[first];
			cpus->held[first] = true;
		}
		text = end + 1;
	} while (*end);
	return true;
}

static enum exit_code run_command(int argc, char **argv)
{
	static const struct option known[] = {
		{ "plan", required_argument, NULL, 'p' },
		{ "log", required_argument, NULL, 'l' },
		{ "fifo", required_argument, NULL, 'f' },
		{ "port", required_argument, NULL, 'n' },
		{ "tcp", no_argument, NULL, 't' },
		{ "cpus", required_argument, NULL, 'c' },
		{ "probe-control", required_argument, NULL, 'r' },
		{ 0 },
	};
	struct run_options o = { .port = PORT };
	enum exit_code code;
	int option;
	long number;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (option == 'p')
			o.plan = optarg;
		else if (option == 'l')
			o.log = optarg;
		else if (option == 'r')
			o.probe_control = optarg;
		else if (option == 't')
			o.tcp = true;
		else if (option == 'f' && read_whole(optarg, 1, 99, &number))
			o.fifo = (int)number;
		else if (option == 'f')
			return wrong_usage("--fifo from 1 to 99", optarg);
		else if (option == 'n' && read_whole(optarg, 1, 65535, &number))
			o.port = (uint16_t)number;
		else if (option == 'n')
			return wrong_usage("--port from 1 to 65535", optarg);
		else if (option == 'c' && !read_cpus(optarg, &o.cpus))
			return wrong_usage("--cpus as 0,2-3", optarg);
		else if (option == '?')
			return EXIT_USAGE;
	}
	if (!o.plan || !o.log)
		return wrong_usage("--plan and --log", NULL);
	if (optind == argc)
		return wrong_usage("the PIDs of tasks", NULL);
	for (int i = optind; i < argc; i++)
		if (!read_whole(argv[i], 1, INT32_MAX, &number))
			return wrong_usage("the PID of a task", argv[i]);
	o.tasks = keep(calloc((size_t)(argc - optind), sizeof(*o.tasks)));
	while (optind < argc)
		o.tasks[o.n_tasks++] = atoi(argv[optind++]);
	code = run(&o);
	free(o.tasks);
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
	return wrong_usage("run, check or speed; the usage stands at the start of switcher.c", command);
}
