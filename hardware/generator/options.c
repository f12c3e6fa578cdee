// SPDX-License-Identifier: MIT
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../common/arguments.h"
#include "options.h"
#include "process.h"

#define CLIENT_SPIN_NS (100 * NS_PER_US)

void usage(const char *option, const char *expected)
{
	if (option)
		fprintf(stderr, "sipload: --%s: expected %s\n", option, expected);
	else
		fprintf(stderr, "sipload: %s; the usage is at the start of sipload.c\n", expected);
	exit(EXIT_USAGE);
}

static double parse_double(const char *option, const char *text, double least, double most)
{
	char expected[160];
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value >= least && value <= most)) {
		snprintf(expected, sizeof(expected), "a number from %g to %g, found %.30s", least, most,
			 text);
		usage(option, expected);
	}
	return value;
}

static uint64_t parse_number(const char *option, const char *text, uint64_t least, uint64_t most)
{
	char expected[160];
	char *end;
	uint64_t value;

	errno = 0;
	value = strtoull(text, &end, 0);
	if (end == text || *end || *text == '-' || errno || value < least || value > most) {
		snprintf(expected, sizeof(expected), "a whole number from %llu to %llu, found %.30s",
			 (unsigned long long)least, (unsigned long long)most, text);
		usage(option, expected);
	}
	return value;
}

static uint64_t parse_ms(const char *option, const char *text)
{
	return (uint64_t)(parse_double(option, text, 0.0, 1e9) * (double)NS_PER_MS);
}

/* Return true if the text is `yes`, false if it is `no`. Any other text is wrong usage. */
static bool parse_choice(const char *option, const char *text, const char *yes, const char *no)
{
	char expected[160];

	if (!strcmp(text, yes))
		return true;
	if (!strcmp(text, no))
		return false;
	snprintf(expected, sizeof(expected), "%.30s or %.30s, found %.30s", yes, no, text);
	usage(option, expected);
}

static struct endpoint parse_endpoint(const char *option, const char *text)
{
	struct endpoint endpoint = { 0 };

	if (!parse_address(text, &endpoint.address))
		usage(option, "an IPv4 address and a port, such as 10.0.0.1:5060");
	memcpy(endpoint.host, text, strcspn(text, ":"));
	return endpoint;
}

static void parse_cpus(struct options *o, const char *option, const char *text)
{
	unsigned long first, last;

	do {
		if (!parse_cpu_range(&text, CPU_SETSIZE, &first, &last))
			usage(option, "a list of CPUs, such as 0,2-3");
		for (; first <= last; first++) {
			if (o->n_cpus == CPUS_MAX)
				usage(option, "at most 256 CPUs");
			o->cpus[o->n_cpus++] = (int)first;
		}
	} while (*text);
}

/* clang-format off */
#define OPTION(name, letter) { name, required_argument, NULL, letter }
/* clang-format on */

static const struct option OPTIONS[] = {
	OPTION("local", 'l'),
	OPTION("report", 'o'),
	OPTION("transport", 'p'),
	OPTION("threads", 'n'),
	OPTION("cpus", 'c'),
	OPTION("retransmissions", 'R'),
	OPTION("buffer-bytes", 'b'),
	OPTION("fifo", 'f'),
	OPTION("spin-us", 's'),
	OPTION("remote", 'r'),
	OPTION("schedule", 'S'),
	OPTION("calls-file", 'C'),
	OPTION("tcp-connections", 't'),
	OPTION("hold-ms", 'h'),
	OPTION("drain-s", 'd'),
	OPTION("late-ms", 'a'),
	OPTION("ring-ms", 'i'),
	OPTION("ready", 'y'),
	{ 0 },
};
static const char CLIENT_ONLY[] = "rSCthda";
static const char SERVER_ONLY[] = "iy";

/* This function is longer than 60 lines, because it has one case per option. */
static void parse_option(struct options *o, int option, const char *name)
{
	switch (option) {
	case 'l':
		o->local = parse_endpoint(name, optarg);
		return;
	case 'r':
		o->remote = parse_endpoint(name, optarg);
		return;
	case 'S':
		o->schedule = optarg;
		return;
	case 'C':
		o->calls_file = optarg;
		return;
	case 'o':
		o->report = optarg;
		return;
	case 'y':
		o->ready = optarg;
		return;
	case 'p':
		o->timing.reliable = parse_choice(name, optarg, "tcp", "udp");
		return;
	case 't':
		o->tcp_connections =
			!strcmp(optarg, "per-call") ? 0 : (unsigned)parse_number(name, optarg, 1, 60000);
		return;
	case 'n':
		o->threads = (unsigned)parse_number(name, optarg, 1, THREADS_MAX);
		return;
	case 'c':
		parse_cpus(o, name, optarg);
		return;
	case 'h':
		o->hold_exponential = !strncmp(optarg, "exp:", 4);
		o->hold_ns = parse_ms(name, optarg + (o->hold_exponential ? 4 : 0));
		return;
	case 'i':
		o->ring_ns = parse_ms(name, optarg);
		return;
	case 'R':
		o->timing.retransmissions = parse_choice(name, optarg, "on", "off");
		return;
	case 'd':
		o->drain_ns = (uint64_t)(parse_double(name, optarg, 0.0, 1e6) * (double)NS_PER_S);
		return;
	case 'a':
		o->late_ns = parse_ms(name, optarg);
		return;
	case 's':
		o->spin_ns = !strcmp(optarg, "always") ? UINT64_MAX
						       : parse_number(name, optarg, 0, 1000000) * NS_PER_US;
		return;
	case 'b':
		o->buffer_bytes = (int)parse_number(name, optarg, 1, 1 << 30);
		return;
	case 'f':
		o->fifo = (int)parse_number(name, optarg, 1, 99);
		return;
	default:
		usage(NULL, "unknown or incomplete option");
	}
}

static void parse_options(struct options *o, const char *other_role, uint64_t spin_ns, int argc, char **argv)
{
	int option, index = 0;

	*o = (struct options){ .timing = { 500 * NS_PER_MS, 4 * NS_PER_S, 5 * NS_PER_S, true, false },
			       .threads = 1,
			       .drain_ns = 40 * NS_PER_S,
			       .late_ns = 500 * NS_PER_MS,
			       .spin_ns = spin_ns,
			       .buffer_bytes = 4194304 };
	while ((option = getopt_long(argc, argv, "", OPTIONS, &index)) != -1) {
		/* each role rejects the options that only the other role has */
		if (option != '?' && strchr(other_role, option))
			option = '?';
		parse_option(o, option, option == '?' ? "" : OPTIONS[index].name);
	}
	if (optind < argc)
		usage(NULL, "only options are expected after the command");
	if (!o->local.address.sin_port || !o->report)
		usage(NULL, "--local and --report are needed");
}

void parse_client_options(struct options *o, int argc, char **argv)
{
	parse_options(o, SERVER_ONLY, CLIENT_SPIN_NS, argc, argv);
	if (!o->remote.address.sin_port || !o->schedule || !o->calls_file)
		usage(NULL, "--remote, --schedule and --calls-file are needed");
	if (ntohs(o->local.address.sin_port) + o->threads > 65536)
		usage("threads", "at most one thread per port from the port of --local to 65535");
	if (o->tcp_connections && o->tcp_connections < o->threads)
		usage("tcp-connections", "at least one connection per thread");
}

void parse_server_options(struct options *o, int argc, char **argv)
{
	parse_options(o, CLIENT_ONLY, 0, argc, argv);
	if (o->timing.reliable && o->threads > 1)
		usage("threads", "1 with --transport tcp, because a connection belongs to one thread");
}

void parse_schedule_options(struct schedule_options *o, int argc, char **argv)
{
	static const struct option known[] = {
		{ "rate", required_argument, NULL, 'r' },
		{ "calls", required_argument, NULL, 'n' },
		{ "blocks", required_argument, NULL, 'b' },
		{ "law", required_argument, NULL, 'l' },
		{ "seed", required_argument, NULL, 's' },
		{ "output", required_argument, NULL, 'o' },
		{ 0 },
	};
	int option;

	*o = (struct schedule_options){ .law = SCHEDULE_EXPONENTIAL, .seed = 1 };
	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (option == 'r')
			o->rate_cps = parse_double("rate", optarg, 1e-6, 1e9);
		else if (option == 'n')
			o->calls = parse_number("calls", optarg, 1, SCHEDULE_CALLS_MAX);
		else if (option == 'b')
			o->blocks = optarg;
		else if (option == 'l')
			o->law = parse_choice("law", optarg, "exponential", "constant") ? SCHEDULE_EXPONENTIAL
											: SCHEDULE_CONSTANT;
		else if (option == 's')
			o->seed = parse_number("seed", optarg, 0, UINT64_MAX);
		else if (option == 'o')
			o->output = optarg;
		else
			usage(NULL, "unknown or incomplete option");
	}
	if (optind < argc || !o->output || !!o->blocks + !!o->calls != 1 || !(o->rate_cps > 0.0))
		usage(NULL, "--output, and --rate with --calls or --blocks, are needed");
}
