// SPDX-License-Identifier: MIT
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "../common/arguments.h"
#include "options.h"
#include "probe.h"
#include "system.h"

#define RING_BYTES_DEFAULT (16 * 1024 * 1024)

const char *mode_name(enum mode_choice mode)
{
	switch (mode) {
	case MODE_EXACT:
		return "exact";
	case MODE_STREAM:
		return "stream";
	default:
		return "tracepoint";
	}
}

uint32_t proxy_namespace(const struct options *options)
{
	return options->netns ? namespace_of(options->netns) : own_network_namespace();
}

int usage(void)
{
	fputs("usage: sipprobe check [--port N]\n"
	      "       sipprobe run --port N --comm NAME --output TRACE --report JSON --ready FILE\n"
	      "                    [--control SOCKET] [--mode auto|exact|tracepoint|stream] [--peer-port N]\n"
	      "                    [--ports N] [--ring-bytes N] [--snippet-bytes N] [--verbose]\n"
	      "       sipprobe watch --port N --comm NAME [--netns FILE] [--one-in N]\n"
	      "                    [--mode auto|exact|tracepoint|stream] [--peer-port N] [--ports N] "
	      "[--ring-bytes N]\n"
	      "       sipprobe histograms --port N [--ports N] [--netns FILE]\n"
	      "       sipprobe counters NAME NETNS [TCP_PORT]\n",
	      stderr);
	return EXIT_USAGE;
}

static bool parse_number(const char *name, const char *text, unsigned long least, unsigned long most,
			 unsigned long *value)
{
	long long number;

	if (parse_whole(text, (long long)least, (long long)most, &number)) {
		*value = (unsigned long)number;
		return true;
	}
	complain("--%s: expected a number from %lu to %lu, found \"%s\"", name, least, most, text);
	return false;
}

static bool parse_mode(const char *text, enum mode_choice *mode)
{
	if (!strcmp(text, "auto"))
		*mode = MODE_AUTO;
	else if (!strcmp(text, "exact"))
		*mode = MODE_EXACT;
	else if (!strcmp(text, "tracepoint"))
		*mode = MODE_TRACEPOINT;
	else if (!strcmp(text, "stream"))
		*mode = MODE_STREAM;
	else {
		complain("--mode: expected auto, exact, tracepoint or stream, found \"%s\"", text);
		return false;
	}
	return true;
}

static bool parse_ring_bytes(const char *text, unsigned long *bytes)
{
	unsigned long page = (unsigned long)sysconf(_SC_PAGESIZE);

	if (!parse_number("ring-bytes", text, page, 1UL << 30, bytes))
		return false;
	if (*bytes & (*bytes - 1)) {
		complain("--ring-bytes: expected a power of 2 and a multiple of the page size (%lu), found "
			 "\"%s\"",
			 page, text);
		return false;
	}
	return true;
}

/* This function may be longer than 60 lines, because it has one simple case per option. */
bool parse_options(int argc, char **argv, struct options *options)
{
	static const struct option names[] = {
		{ "port", required_argument, NULL, 'p' },
		{ "ports", required_argument, NULL, 'n' },
		{ "peer-port", required_argument, NULL, 'e' },
		{ "comm", required_argument, NULL, 'c' },
		{ "output", required_argument, NULL, 'o' },
		{ "report", required_argument, NULL, 'r' },
		{ "ready", required_argument, NULL, 'y' },
		{ "control", required_argument, NULL, 'l' },
		{ "mode", required_argument, NULL, 'm' },
		{ "ring-bytes", required_argument, NULL, 'b' },
		{ "snippet-bytes", required_argument, NULL, 's' },
		{ "netns", required_argument, NULL, 'w' },
		{ "one-in", required_argument, NULL, 'i' },
		{ "verbose", no_argument, NULL, 'v' },
		{ 0 },
	};
	bool good = true;
	int option;

	*options = (struct options){
		.port = 5060,
		.ports = 1,
		.peer_port = 5060,
		.ring_bytes = RING_BYTES_DEFAULT,
		.snippet_bytes = PROBE_SNIPPET_DEFAULT,
		.one_in = 1,
	};
	while (good && (option = getopt_long(argc, argv, "", names, NULL)) != -1) {
		switch (option) {
		case 'p':
			good = parse_number("port", optarg, 1, UINT16_MAX, &options->port);
			break;
		case 'n':
			good = parse_number("ports", optarg, 1, UINT16_MAX, &options->ports);
			break;
		case 'e':
			good = parse_number("peer-port", optarg, 1, UINT16_MAX, &options->peer_port);
			break;
		case 'c':
			options->comm = optarg;
			break;
		case 'o':
			options->output = optarg;
			break;
		case 'r':
			options->report = optarg;
			break;
		case 'y':
			options->ready = optarg;
			break;
		case 'l':
			options->control = optarg;
			break;
		case 'm':
			good = parse_mode(optarg, &options->mode);
			break;
		case 'b':
			good = parse_ring_bytes(optarg, &options->ring_bytes);
			break;
		case 's':
			good = parse_number("snippet-bytes", optarg, PROBE_FINGERPRINT_BYTES,
					    PROBE_SNIPPET_MAX, &options->snippet_bytes);
			break;
		case 'w':
			options->netns = optarg;
			break;
		case 'i':
			good = parse_number("one-in", optarg, 1, UINT16_MAX, &options->one_in);
			break;
		case 'v':
			options->verbose = true;
			break;
		default:
			good = false;
		}
	}
	if (good && optind < argc) {
		complain("unexpected argument \"%s\"", argv[optind]);
		return false;
	}
	return good;
}
