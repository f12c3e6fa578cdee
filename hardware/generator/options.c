// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "options.h"
#include "process.h"

#define CLIENT_SPIN_NS (100 * NS_PER_US)

void usage(const char *option, const char *expected)
{
	if (option)
		fprintf(stderr, "sipload: --%s: expected %s\n", option, expected);
	else
		fprintf(stderr, "sipload: %s; the usage stands at the start of sipload.c\n", expected);
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

/* One of two words; true for the first. */
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
	struct endpoint endpoint = { .address.sin_family = AF_INET };
	const char *colon = strchr(text, ':');
	size_t size = colon ? (size_t)(colon - text) : 0;

	if (!size || size >= sizeof(endpoint.host))
		usage(option, "an IPv4 address and a port, as 10.0.0.1:5060");
	memcpy(endpoint.host, text, size);
	if (inet_pton(AF_INET, endpoint.host, &endpoint.address.sin_addr) != 1)
		usage(option, "an IPv4 address and a port, as 10.0.0.1:5060");
	endpoint.address.sin_port = htons((uint16_t)parse_number(option, colon + 1, 1, 65535));
	return endpoint;
}

/* 0,2-3 */
static void parse_cpus(struct options *o, const char *option, const char *text)
{
	do {
		char *end;
		unsigned long first = strtoul(text, &end, 10), last = first;

		if (end == text || *text == '-')
			usage(option, "a list of CPUs, as 0,2-3");
		if (*end == '-') {
			text = end + 1;
			last = strtoul(text, &end, 10);
			if (end == text)
				usage(option, "a list of CPUs, as 0,2-3");
		}
		if (first > last || last >= CPU_SETSIZE || (*end && *end != ','))
			usage(option, "a list of CPUs, as 0,2-3");
		for (; first <= last; first++) {
			if (o->n_cpus == CPUS_MAX)
				usage(option, "at most 256 CPUs");
			o->cpus[o->n_cpus++] = (int)first;
		}
		text = *end ? end + 1 : end;
	} while (*text);
}

enum {
	OPTION_LOCAL = 1,
	OPTION_REMOTE,
	OPTION_SCHEDULE,
	OPTION_CALLS_FILE,
	OPTION_REPORT,
	OPTION_READY,
	OPTION_TRANSPORT,
	OPTION_TCP_CONNECTIONS,
	OPTION_THREADS,
	OPTION_CPUS,
	OPTION_HOLD,
	OPTION_RING,
	OPTION_RETRANSMISSIONS,
	OPTION_DRAIN,
	OPTION_LINGER,
	OPTION_LATE,
	OPTION_SPIN,
	OPTION_T1,
	OPTION_T2,
	OPTION_T4,
	OPTION_BUFFER,
	OPTION_FIFO,
};

#define COMMON_OPTIONS                                                                  \
	{ "local", required_argument, NULL, OPTION_LOCAL },                             \
		{ "report", required_argument, NULL, OPTION_REPORT },                   \
		{ "transport", required_argument, NULL, OPTION_TRANSPORT },             \
		{ "threads", required_argument, NULL, OPTION_THREADS },                 \
		{ "cpus", required_argument, NULL, OPTION_CPUS },                       \
		{ "retransmissions", required_argument, NULL, OPTION_RETRANSMISSIONS }, \
		{ "t1-ms", required_argument, NULL, OPTION_T1 },                        \
		{ "t2-ms", required_argument, NULL, OPTION_T2 },                        \
		{ "t4-ms", required_argument, NULL, OPTION_T4 },                        \
		{ "buffer-bytes", required_argument, NULL, OPTION_BUFFER },             \
	{                                                                               \
		"fifo", required_argument, NULL, OPTION_FIFO                            \
	}

static const struct option CLIENT_OPTIONS[] = {
	COMMON_OPTIONS,
	{ "remote", required_argument, NULL, OPTION_REMOTE },
	{ "schedule", required_argument, NULL, OPTION_SCHEDULE },
	{ "calls-file", required_argument, NULL, OPTION_CALLS_FILE },
	{ "tcp-connections", required_argument, NULL, OPTION_TCP_CONNECTIONS },
	{ "hold-ms", required_argument, NULL, OPTION_HOLD },
	{ "drain-s", required_argument, NULL, OPTION_DRAIN },
	{ "linger-ms", required_argument, NULL, OPTION_LINGER },
	{ "late-ms", required_argument, NULL, OPTION_LATE },
	{ "spin-us", required_argument, NULL, OPTION_SPIN },
	{ 0 },
};

static const struct option SERVER_OPTIONS[] = {
	COMMON_OPTIONS,
	{ "ring-ms", required_argument, NULL, OPTION_RING },
	{ "spin-us", required_argument, NULL, OPTION_SPIN },
	{ "ready", required_argument, NULL, OPTION_READY },
	{ 0 },
};

static void parse_option(struct options *o, int option, const char *name)
{
	switch (option) {
	case OPTION_LOCAL:
		o->local = parse_endpoint(name, optarg);
		return;
	case OPTION_REMOTE:
		o->remote = parse_endpoint(name, optarg);
		return;
	case OPTION_SCHEDULE:
		o->schedule = optarg;
		return;
	case OPTION_CALLS_FILE:
		o->calls_file = optarg;
		return;
	case OPTION_REPORT:
		o->report = optarg;
		return;
	case OPTION_READY:
		o->ready = optarg;
		return;
	case OPTION_TRANSPORT:
		o->timing.reliable = parse_choice(name, optarg, "tcp", "udp");
		return;
	case OPTION_TCP_CONNECTIONS:
		o->tcp_connections =
			!strcmp(optarg, "per-call") ? 0 : (unsigned)parse_number(name, optarg, 1, 60000);
		return;
	case OPTION_THREADS:
		o->threads = (unsigned)parse_number(name, optarg, 1, THREADS_MAX);
		return;
	case OPTION_CPUS:
		parse_cpus(o, name, optarg);
		return;
	case OPTION_HOLD:
		o->hold_exponential = !strncmp(optarg, "exp:", 4);
		o->hold_ns = parse_ms(name, optarg + (o->hold_exponential ? 4 : 0));
		return;
	case OPTION_RING:
		o->ring_ns = parse_ms(name, optarg);
		return;
	case OPTION_RETRANSMISSIONS:
		o->timing.retransmissions = parse_choice(name, optarg, "on", "off");
		return;
	case OPTION_DRAIN:
		o->drain_ns = (uint64_t)(parse_double(name, optarg, 0.0, 1e6) * (double)NS_PER_S);
		return;
	case OPTION_LINGER:
		o->linger_ns = parse_ms(name, optarg);
		return;
	case OPTION_LATE:
		o->late_ns = parse_ms(name, optarg);
		return;
	case OPTION_SPIN:
		o->spin_ns = !strcmp(optarg, "always") ? UINT64_MAX
						       : parse_number(name, optarg, 0, 1000000) * NS_PER_US;
		return;
	case OPTION_T1:
		o->timing.t1_ns = (uint64_t)(parse_double(name, optarg, 1.0, 60000.0) * (double)NS_PER_MS);
		return;
	case OPTION_T2:
		o->timing.t2_ns = (uint64_t)(parse_double(name, optarg, 1.0, 600000.0) * (double)NS_PER_MS);
		return;
	case OPTION_T4:
		o->timing.t4_ns = (uint64_t)(parse_double(name, optarg, 0.0, 600000.0) * (double)NS_PER_MS);
		return;
	case OPTION_BUFFER:
		o->buffer_bytes = (int)parse_number(name, optarg, 1, 1 << 30);
		return;
	case OPTION_FIFO:
		o->fifo = (int)parse_number(name, optarg, 1, 99);
		return;
	default:
		usage(NULL, "unknown or incomplete option");
	}
}

static void parse_options(struct options *o, const struct option *known, uint64_t spin_ns, int argc,
			  char **argv)
{
	int option, index = 0;

	*o = (struct options){ .timing = { 500 * NS_PER_MS, 4 * NS_PER_S, 5 * NS_PER_S, true, false },
			       .threads = 1,
			       .drain_ns = 40 * NS_PER_S,
			       .linger_ns = 100 * NS_PER_MS,
			       .late_ns = 500 * NS_PER_MS,
			       .spin_ns = spin_ns,
			       .buffer_bytes = 4194304 };
	while ((option = getopt_long(argc, argv, "", known, &index)) != -1)
		parse_option(o, option, option == '?' ? "" : known[index].name);
	if (optind < argc)
		usage(NULL, "only options are expected after the command");
	if (!o->local.address.sin_port || !o->report)
		usage(NULL, "--local and --report are needed");
}

void parse_client_options(struct options *o, int argc, char **argv)
{
	parse_options(o, CLIENT_OPTIONS, CLIENT_SPIN_NS, argc, argv);
	if (!o->remote.address.sin_port || !o->schedule || !o->calls_file)
		usage(NULL, "--remote, --schedule and --calls-file are needed");
	if (ntohs(o->local.address.sin_port) + o->threads > 65536)
		usage("threads", "a port for each, from --local's on");
	if (o->tcp_connections && o->tcp_connections < o->threads)
		usage("tcp-connections", "at least one for each thread");
}

void parse_server_options(struct options *o, int argc, char **argv)
{
	parse_options(o, SERVER_OPTIONS, 0, argc, argv);
	if (o->timing.reliable && o->threads > 1)
		usage("threads", "1 with --transport tcp: a connection belongs to one thread");
}

void parse_schedule_options(struct schedule_options *o, int argc, char **argv)
{
	static const struct option known[] = {
		{ "rate", required_argument, NULL, 'r' },   { "calls", required_argument, NULL, 'n' },
		{ "blocks", required_argument, NULL, 'b' }, { "law", required_argument, NULL, 'l' },
		{ "seed", required_argument, NULL, 's' },   { "from-text", required_argument, NULL, 'f' },
		{ "output", required_argument, NULL, 'o' }, { 0 },
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
		else if (option == 'f')
			o->text = optarg;
		else if (option == 'o')
			o->output = optarg;
		else
			usage(NULL, "unknown or incomplete option");
	}
	if (optind < argc || !o->output || !!o->text + !!o->blocks + !!o->calls != 1 ||
	    !o->text != (o->rate_cps > 0.0))
		usage(NULL, "--output, and --rate with --calls or --blocks, or --from-text, are needed");
}
